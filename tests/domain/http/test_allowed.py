"""The operator's list opens exactly what it says, and never a cloud's metadata."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from attune.domain.http.addresses import METADATA, METADATA_NAMES
from attune.domain.http.allowed import BadAllowList, Refused, check_destination, check_name, parse_allow_list

OPEN = "0.0.0.0/0, [::/0]"


def passes(host: str, port: int, address: str, allow: str) -> bool:
    try:
        check_name(host)
        check_destination(host, port, [ip_address(address)], allow=parse_allow_list(allow))
    except Refused:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "port", "address", "allow", "expected"),
    [
        ("a.example", 80, "8.8.8.8", "", True),
        ("a.example", 80, "10.0.0.1", "", False),
        ("a.example", 80, "10.0.0.1", "10.0.0.0/8", True),
        ("a.example", 80, "11.0.0.1", "10.0.0.0/8", True),
        ("a.example", 80, "192.168.0.1", "10.0.0.0/8", False),
        ("a.example", 80, "10.0.0.1", "10.0.0.1", True),
        ("a.example", 81, "10.0.0.1", "10.0.0.1:80", False),
        ("a.example", 80, "10.0.0.1", "10.0.0.0/8:80", True),
        ("a.example", 443, "fd00::1", "[fd00::/8]:443", True),
        ("a.example", 80, "fd00::1", "[fd00::/8]:443", False),
        ("a.example", 80, "fd00::1", "fd00::/8", True),
        ("a.example", 8080, "10.0.0.1", "a.example:8080", True),
        ("A.EXAMPLE.", 8080, "10.0.0.1", "a.example:8080", True),
        ("a.example", 8081, "10.0.0.1", "a.example:8080", False),
        ("b.a.example", 8080, "10.0.0.1", "a.example:8080", False),
        ("a.example", 80, "::ffff:10.0.0.1", "10.0.0.0/8", True),
        ("a.example", 80, "64:ff9b::a00:1", "10.0.0.0/8", True),
        ("a.example", 80, "64:ff9b::a00:1", "", False),
    ],
)
def test_the_list_opens_exactly_what_it_says(host: str, port: int, address: str, allow: str, *, expected: bool) -> None:
    assert passes(host, port, address, allow) is expected


@pytest.mark.parametrize("address", sorted(map(str, METADATA)))
def test_no_list_opens_metadata(address: str) -> None:
    assert not passes("a.example", 80, address, f"{OPEN}, a.example")


@pytest.mark.parametrize("name", sorted(METADATA_NAMES))
def test_no_list_opens_a_name_of_metadata(name: str) -> None:
    assert not passes(name.upper() + ".", 80, "8.8.8.8", f"{OPEN}, {name}")


def test_one_bad_answer_among_good_ones_is_enough() -> None:
    addresses = [ip_address("8.8.8.8"), ip_address("127.0.0.1")]
    with pytest.raises(Refused, match=r"a\.example \(127\.0\.0\.1\) is a loopback address; worker\.http\.allow"):
        check_destination("a.example", 80, addresses, allow=())


def test_the_reason_names_what_an_address_stands_for() -> None:
    with pytest.raises(Refused, match=r"64:ff9b::7f00:1, which stands for 127\.0\.0\.1, is a loopback address"):
        check_destination("64:ff9b::7f00:1", 80, [ip_address("64:ff9b::7f00:1")], allow=())


@pytest.mark.parametrize("text", [None, "", " , ,", "10.0.0.0/8,,"])
def test_empty_entries_mean_nothing(text: str | None) -> None:
    assert len(parse_allow_list(text)) == (1 if text and "10" in text else 0)


@pytest.mark.parametrize(
    "entry",
    [
        "10.0.0.1/8",
        "http://a.example",
        "a b",
        "*.example",
        "a.example:0",
        "a.example:70000",
        "127.1",
        "2130706433",
        "0x7f.1",
        "[a.example",
        ":80",
    ],
)
def test_an_entry_that_means_nothing_is_refused_by_name(entry: str) -> None:
    with pytest.raises(BadAllowList) as raised:
        parse_allow_list(f"10.0.0.0/8, {entry}")
    assert repr(entry) in raised.value.message
