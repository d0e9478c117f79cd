"""Only what is public is public, however it is written."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.domain.http.addresses import METADATA, Kind, embedded, facets, kind_of, without_zone

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "172.32.0.1"]

SPECIAL = {
    Kind.UNSPECIFIED: ["0.0.0.0", "0.1.2.3", "::"],  # noqa: S104  an address to judge
    Kind.LOOPBACK: ["127.0.0.1", "127.255.255.254", "::1"],
    Kind.PRIVATE: ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::1", "64:ff9b:1::a00:1"],
    Kind.SHARED: ["100.64.0.1", "100.127.255.255"],
    Kind.LINK_LOCAL: ["169.254.1.1", "fe80::1", "febf::1"],
    Kind.SITE_LOCAL: ["fec0::1", "feff::1"],
    Kind.MULTICAST: ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    Kind.DOCUMENTATION: ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
    Kind.BENCHMARKING: ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    Kind.RESERVED: ["240.0.0.1", "255.255.255.255", "192.0.0.1", "192.88.99.1", "100::1", "4000::1", "2001:10::1"],
    Kind.METADATA: sorted(map(str, METADATA)),
}

four = st.integers(0, 2**32 - 1).map(IPv4Address)
private_four = st.sampled_from(["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "0.0.0.0", "224.0.0.1"]).map(  # noqa: S104  an address to judge
    IPv4Address
)


def notations(inside: IPv4Address) -> dict[str, IPv6Address]:
    """Every address that stands for an IPv4 one."""
    number = int(inside)
    return {
        "mapped": IPv6Address(f"::ffff:{inside}"),
        "compatible": IPv6Address(number),
        "translated": IPv6Address((0xFFFF << 48) | number),
        "NAT64": IPv6Address((0x64FF9B << 96) | number),
        "local NAT64": IPv6Address((0x64FF9B0001 << 80) | number),
        "6to4": IPv6Address((0x2002 << 112) | (number << 80) | 1),
        "Teredo server": IPv6Address((0x20010000 << 96) | (number << 64) | 0xF7F7F7F7),
        "Teredo client": IPv6Address((0x20010000 << 96) | (0x08080808 << 64) | (~number & 0xFFFFFFFF)),
        "ISATAP": IPv6Address((0x2606 << 112) | (0x5EFE << 32) | number),
    }


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is_public(text: str) -> None:
    assert kind_of(ip_address(text)) is None


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in SPECIAL.items() for text in texts])
def test_every_special_range_is_known_by_its_kind(kind: Kind, text: str) -> None:
    assert kind_of(ip_address(text)) is kind


@given(inside=four)
def test_an_address_hidden_in_another_is_found_in_every_notation(inside: IPv4Address) -> None:
    if int(inside) <= 1:
        return  # `::` and `::1` are addresses of their own.
    for notation, address in notations(inside).items():
        assert inside in embedded(address), notation
        assert inside in facets(address), notation


@given(inside=private_four)
def test_no_notation_makes_a_private_address_public(inside: IPv4Address) -> None:
    for notation, address in notations(inside).items():
        assert any(kind_of(facet) for facet in facets(address)), notation


@given(number=st.integers(0, 2**128 - 1))
def test_whatever_is_judged_public_is_global_to_python_too(number: int) -> None:
    address = IPv6Address(number)
    if all(kind_of(facet) is None for facet in facets(address)):
        assert address.is_global or embedded(address)


@given(inside=four)
def test_an_ipv4_address_stands_for_itself_alone(inside: IPv4Address) -> None:
    assert facets(inside) == (inside,)
    if kind_of(inside) is None:
        assert inside.is_global


def test_a_zone_changes_nothing() -> None:
    assert without_zone(IPv6Address("fe80::1%eth0")) == IPv6Address("fe80::1")
