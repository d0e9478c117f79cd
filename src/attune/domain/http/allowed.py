"""Where requests may go: anywhere public, to what the operator allows, and never to a cloud's metadata."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final

from attune.domain.errors import Invalid
from attune.domain.http.addresses import METADATA_NAMES, Address, Kind, Network, facets, kind_of, without_zone

ENTRIES_MAX: Final = 1000
_PORT_MAX: Final = 65_535
_BRACKETED: Final = re.compile(r"\[(?P<place>[^\]]*)\](:(?P<port>[0-9]{1,5}))?")
_PLAIN: Final = re.compile(r"(?P<place>[^:\[\]]*)(:(?P<port>[0-9]{1,5}))?")
_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")
_NUMERIC_LABEL: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Refused(Exception):
    """A request may not go there; the message says where that would have been and why."""


class BadAllowList(Invalid):
    """An entry of the allow-list means nothing."""

    code = "bad_allow_list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """One entry: a network or a name, at one port or at all of them."""

    network: Network | None = None
    name: str | None = None
    port: int | None = None

    def opens(self, host: str, port: int, facet: Address) -> bool:
        if self.port not in (None, port):
            return False
        return self.name == host if self.network is None else facet in self.network


def parse_allow_list(text: str | None) -> tuple[Allowed, ...]:
    """Read `10.0.0.0/8, [fd00::/8]:443, intranet.example:8080`."""
    entries = [part.strip() for part in (text or "").split(",") if part.strip()]
    if len(entries) > ENTRIES_MAX:
        raise BadAllowList(f"worker.http.allow has {len(entries)} entries; at most {ENTRIES_MAX} are read")
    return tuple(_parse(entry) for entry in entries)


def check_name(host: str) -> None:
    """Raises Refused for a name that is never looked up."""
    if plain_name(host) in METADATA_NAMES:
        raise Refused(f"{host} is {Kind.METADATA}, which is never asked")


def check_destination(host: str, port: int, addresses: Sequence[Address], *, allow: Sequence[Allowed]) -> None:
    """Raises Refused unless every address a name stands for may be asked at this port."""
    name = plain_name(host)
    for address in map(without_zone, addresses):
        for facet in facets(address):
            kind = kind_of(facet)
            if kind is None:
                continue
            if kind is Kind.METADATA:
                raise Refused(f"{_say(host, address, facet)} is {kind}, which is never asked")
            if not any(entry.opens(name, port, facet) for entry in allow):
                raise Refused(f"{_say(host, address, facet)} is {kind}; worker.http.allow does not list it")


def plain_name(host: str) -> str:
    """One way of writing a name."""
    return host.lower().rstrip(".")


def _say(host: str, address: Address, facet: Address) -> str:
    inside = "" if facet == address else f", which stands for {facet},"
    return f"{address}{inside}" if host == str(address) else f"{host} ({address}{inside})"


def _parse(entry: str) -> Allowed:
    network = _network(entry)
    if network is not None:
        return Allowed(network=network)
    match = _BRACKETED.fullmatch(entry) or _PLAIN.fullmatch(entry)
    if match is None:
        raise _bad(entry)
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= _PORT_MAX:
        raise _bad(entry)
    network = _network(match["place"])
    if network is not None:
        return Allowed(network=network, port=port)
    name = plain_name(match["place"])
    # A name of digits alone is an address in a notation that nobody expects.
    if not _NAME.fullmatch(name) or _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
        raise _bad(entry)
    return Allowed(name=name, port=port)


def _network(text: str) -> Network | None:
    try:
        return ip_network(text) if "/" in text else ip_network(ip_address(text))
    except ValueError:
        return None


def _bad(entry: str) -> BadAllowList:
    examples = "a network (10.0.0.0/8, [fd00::/8]:443) nor a host (intranet.example:8080)"
    return BadAllowList(f"worker.http.allow: {entry!r} is neither {examples}")
