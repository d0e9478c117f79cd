"""The record of which failpoints were reached, and killed a process there, over all seeds of a full run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from attune.runtime.failpoints import DECLARED, Action, Declared
from tests.chaos.kinds import BROKER, POSTGRES

# What the last full run has left; `make chaos ARGS=--until-covered` writes it.
RECORD = Path(__file__).parent / "coverage.json"
TRANSPORTS = (POSTGRES, BROKER)
HIT = "hit"
KILLED = "killed"
# The source of what only a broker needs.
_OF_BROKER = "transport/rabbitmq/"

# Point → transport → how many runs reached it, and how many killed a process there.
Points = dict[str, dict[str, dict[str, int]]]


class Coverage:
    """What is known so far; a point that is declared no more is forgotten."""

    def __init__(self, points: Points | None = None, declared: Mapping[str, Declared] = DECLARED) -> None:
        self.declared = declared
        self.points: Points = {name: each for name, each in (points or {}).items() if name in declared}

    @classmethod
    def read(cls, path: Path, declared: Mapping[str, Declared] = DECLARED) -> Coverage:
        """What earlier runs have written; nothing if there were none."""
        return cls(json.loads(path.read_text())["points"] if path.exists() else {}, declared)

    def write(self, path: Path) -> None:
        """For the next run, and for whoever wants to know."""
        path.parent.mkdir(parents=True, exist_ok=True)
        points = {name: self.points[name] for name in sorted(self.points)}
        path.write_text(json.dumps({"points": points}, indent=1) + "\n")

    def note(self, transport: str, reached: Mapping[str, str]) -> None:
        """One run: the points it reached, and what happened there."""
        for name, action in reached.items():
            if name in self.declared:
                counts = self.points.setdefault(name, {}).setdefault(transport, {HIT: 0, KILLED: 0})
                counts[HIT] += 1
                counts[KILLED] += action == Action.KILL

    def missing(self, transport: str) -> list[str]:
        """Points of this transport at which no process was killed, on this one or on another."""
        return [
            name
            for name, point in self.declared.items()
            if transport in transports_of(point) and not self._is_killed(name)
        ]

    def _is_killed(self, name: str) -> bool:
        return any(counts[KILLED] for counts in self.points.get(name, {}).values())

    def told(self, transport: str) -> Iterator[str]:
        """In words, the missing ones by name."""
        wanted = [name for name, point in self.declared.items() if transport in transports_of(point)]
        missing = self.missing(transport)
        yield f"failpoints on {transport}: {len(wanted) - len(missing)} of {len(wanted)} hit and killed"
        yield from (f"  not killed: {name}" for name in missing)


def transports_of(point: Declared) -> tuple[str, ...]:
    """Where it exists: what belongs to a broker is passed only with one."""
    return TRANSPORTS if any(not place.startswith(_OF_BROKER) for place in point.places) else (BROKER,)
