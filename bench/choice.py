"""What of everything is to be measured: whom, and which workloads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.catalogue import PEERS

TRANSPORTS = ("postgres", "rabbitmq")
PEER_NAMES = tuple(peer.name for peer in PEERS)
GROUPS = {"attune": TRANSPORTS, "peers": PEER_NAMES}
WORKLOADS = ("W1", "W2", "W3", "W4", "W5", "W6", "W7")
# A long line takes minutes to fill, and quick means minutes for everything.
QUICK_WORKLOADS = ("W1", "W2", "W3", "W4", "W6", "W7")
# What the transport hardly touches is measured on the embedded one only.
EMBEDDED_ONLY = frozenset({"W5", "W6"})
WORDS = (*WORKLOADS, *GROUPS, *TRANSPORTS, *PEER_NAMES)


class UnknownWord(Exception):
    """Something that is neither a workload nor anybody who is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Names of workloads, and of transports and peers, in the order they are measured."""

    who: Sequence[str]
    workloads: Sequence[str]

    def workloads_on(self, transport: str) -> list[str]:
        """Those that are measured on one transport."""
        return [name for name in self.workloads if transport == "postgres" or name not in EMBEDDED_ONLY]


def choose(*, only: str, without: str, quick: bool) -> Choice:
    """Words with commas between them: workloads, peers, transports, or groups of those."""
    wanted, unwanted = _words(only), _words(without)
    everybody = (*TRANSPORTS, *PEER_NAMES)
    workloads = QUICK_WORKLOADS if quick else WORKLOADS
    who = [name for name in everybody if name in wanted] or list(everybody)
    named = [name for name in WORKLOADS if name in wanted] or list(workloads)
    return Choice(
        who=[name for name in who if name not in unwanted],
        workloads=[name for name in named if name not in unwanted],
    )


def _words(text: str) -> set[str]:
    found: set[str] = set()
    for word in filter(None, (each.strip() for each in text.split(","))):
        if word not in WORDS:
            raise UnknownWord(f"{word} is none of {', '.join(WORDS)}")
        found |= set(GROUPS.get(word, (word,)))
    return found
