"""Which addresses are public, seen through every notation that hides another address inside.

Python's own `is_global` is no filter: it calls NAT64, 6to4 and compatible forms of loopback global, and multicast too.
"""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import MappingProxyType
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_IPV4_MASK: Final = 0xFFFF_FFFF
# The interface part of an ISATAP address is this, or the same with the universal bit, followed by an IPv4 address.
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})


class Kind(StrEnum):
    """Why an address is not public; the text is for people."""

    METADATA = "a cloud's metadata address"
    UNSPECIFIED = "an unspecified address"
    LOOPBACK = "a loopback address"
    PRIVATE = "a private address"
    SHARED = "an address shared behind a carrier's NAT"
    LINK_LOCAL = "a link-local address"
    SITE_LOCAL = "a site-local address"
    MULTICAST = "a multicast address"
    DOCUMENTATION = "an address for documentation"
    BENCHMARKING = "an address for benchmarking"
    RESERVED = "a reserved address"


# These hand out the credentials of the machine; no allow-list opens them.
METADATA: Final = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google, DigitalOcean, OpenStack and most others
        "169.254.169.253",  # AWS, its resolver
        "169.254.170.2",  # AWS, tasks
        "169.254.170.23",  # AWS, pods
        "169.254.0.23",  # Tencent
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
        "168.63.129.16",  # Azure's host, in public space
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS, pods
        "fd00:ec2::253",  # AWS, its resolver
        "fd20:ce::254",  # Google
        "fd00:42::42",  # Scaleway
    )
)
METADATA_NAMES: Final = frozenset(
    {
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "metadata.azure.internal",
        "metadata.tencentyun.com",
        "instance-data",
        "instance-data.ec2.internal",
    }
)

_SPECIAL: Final[Mapping[Kind, tuple[str, ...]]] = MappingProxyType(
    {
        Kind.UNSPECIFIED: ("0.0.0.0/8", "::/128"),
        Kind.LOOPBACK: ("127.0.0.0/8", "::1/128"),
        Kind.PRIVATE: ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "64:ff9b:1::/48"),
        Kind.SHARED: ("100.64.0.0/10",),
        Kind.LINK_LOCAL: ("169.254.0.0/16", "fe80::/10"),
        Kind.SITE_LOCAL: ("fec0::/10",),
        Kind.MULTICAST: ("224.0.0.0/4", "ff00::/8"),
        Kind.DOCUMENTATION: ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
        Kind.BENCHMARKING: ("198.18.0.0/15", "2001:2::/48"),
        Kind.RESERVED: ("192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4", "100::/64", "2001:10::/28", "2001:20::/28"),
    }
)
_RANGES: Final[tuple[tuple[Network, Kind], ...]] = tuple(
    (ip_network(text), kind) for kind, texts in _SPECIAL.items() for text in texts
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")

# An IPv4 address in the last 32 bits: mapped, compatible, translated, NAT64 by everybody's and by a local prefix.
_LAST_BITS: Final = tuple(
    IPv6Network(text) for text in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
# The ranges that are special in themselves, whatever stands in their last bits.
_NOT_EMBEDDING: Final = frozenset({ip_address("::"), ip_address("::1")})


def embedded(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that traffic to this address may end at."""
    if isinstance(address, IPv4Address) or address in _NOT_EMBEDDING:
        return ()
    bits = int(address)
    last = IPv4Address(bits & _IPV4_MASK)
    if any(address in network for network in _LAST_BITS):
        return (last,)
    if address in _SIX_TO_FOUR:
        return (IPv4Address(bits >> 80 & _IPV4_MASK),)
    if address in _TEREDO:
        # The server, and the client with every bit turned over.
        return (IPv4Address(bits >> 64 & _IPV4_MASK), IPv4Address(~bits & _IPV4_MASK))
    if bits >> 32 & _IPV4_MASK in _ISATAP:
        return (last,)
    return ()


def facets(address: Address) -> tuple[Address, ...]:
    """Everything this address stands for; each must be harmless."""
    inside = embedded(address)
    if not inside:
        return (address,)
    outer_counts = isinstance(address, IPv6Address) and (address in _GLOBAL_UNICAST or _kind_by_range(address))
    return (address, *inside) if outer_counts else inside


def kind_of(address: Address) -> Kind | None:
    """Why a single facet is not public; None if it is."""
    if address in METADATA:
        return Kind.METADATA
    found = _kind_by_range(address)
    if found is None and isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return Kind.RESERVED
    return found


def without_zone(address: Address) -> Address:
    """The address alone: the interface behind a percent sign says where it is meant, not what it is."""
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address


def _kind_by_range(address: Address) -> Kind | None:
    return next((kind for network, kind in _RANGES if address in network), None)
