"""From a seed to a plan: which work flows, and which faults strike when.

A pure function, so that a seed is a plan and a plan can be written down, read and run again. What real processes then
do is not repeated by it; the witnesses' records are what a verdict rests on.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.kinds import (
    BROKER,
    NEEDS_BROKER,
    SERVICES,
    Kind,
    amount_of,
    seconds_of,
    targets_of,
)

# How often a kind is among those of a seed: all of them at once would hide what some of them show.
KIND_CHANCE = 0.55
KINDS_MIN = 4
GAP_SECONDS = (2.0, 7.0)
# At the end of the chaos nothing new begins, so that everything is healed by itself.
LAST_SECONDS = 6.0
# In so many seeds that follow each other every failpoint is armed once.
FAILPOINT_TURNS = 5
FAILPOINT_KILL_CHANCE = 0.75
KILL = "kill"
LIMIT_MAX = 3
GROUPS = 3
LONG_SECONDS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something bad: what, to whom, when after the clean beginning, for how long, and how much."""

    kind: Kind
    target: str
    at: float
    seconds: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One action: what it does, and what may be done with it when it fails."""

    ref: str
    runner: str = "shell"
    seconds: float = 0.02
    idempotent: bool = True
    # Its result is too large for a row.
    large: bool = False
    # The first try fails, and the next comes after so many seconds.
    retry_seconds: float | None = None

    @property
    def repeatable(self) -> bool:
        """Whether a lost worker is no reason to give it up."""
        return self.idempotent or self.retry_seconds is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One client that asks for one kind of work, each request after the answer to the last."""

    name: str
    works: Sequence[Work]
    pace_seconds: float
    limit: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    batch_max: int = 3
    cancel_chance: float = 0.0
    priorities: Sequence[int] = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run."""

    seed: int
    transport: str
    clean_seconds: float
    chaos_seconds: float
    tracks: Sequence[Track]
    faults: Sequence[Fault]
    # Entries as ATTUNE_FAILPOINTS takes them; each waits for its fault.
    failpoints: Sequence[str] = ()
    # Whether all messages are applied again at the end.
    replayed: bool = True

    def without_faults(self) -> Plan:
        """The same work in peace."""
        return dataclasses.replace(self, faults=(), failpoints=())


def make_plan(
    seed: int,
    transport: str,
    *,
    chaos_seconds: float,
    clean_seconds: float = 5.0,
    failpoints: Mapping[str, Sequence[str]] | None = None,
) -> Plan:
    """The plan of a seed; `failpoints` are the names that may be armed, each with what it can be armed with."""
    dice = random.Random(f"{seed} {transport}")
    kinds = _draw_kinds(dice, transport)
    until = chaos_seconds - LAST_SECONDS
    armed = _draw_failpoints(dice, failpoints or {}, turn=seed)
    faults = [
        *_draw_faults(dice, kinds, transport, until=until),
        *(Fault(kind=Kind.FAILPOINT, target=name, at=round(dice.uniform(0, until), 2)) for name in armed),
    ]
    return Plan(
        seed=seed,
        transport=transport,
        clean_seconds=clean_seconds,
        chaos_seconds=chaos_seconds,
        tracks=tuple(_draw_tracks(dice)),
        faults=sorted(faults, key=lambda fault: fault.at),
        failpoints=[f"{name}={action}" for name, action in armed.items()],
    )


def _draw_kinds(dice: random.Random, transport: str) -> set[Kind]:
    absent = {Kind.FAILPOINT} if transport == BROKER else {Kind.FAILPOINT, *NEEDS_BROKER}
    possible = [kind for kind in Kind if kind not in absent]
    kinds = {kind for kind in possible if dice.random() < KIND_CHANCE}
    while len(kinds) < KINDS_MIN:
        kinds.add(dice.choice(possible))
    return kinds


def _draw_failpoints(dice: random.Random, failpoints: Mapping[str, Sequence[str]], *, turn: int) -> dict[str, str]:
    """Each has its turn every few seeds, mostly to die there: name → action."""
    names = sorted(failpoints)
    random.Random(FAILPOINT_TURNS).shuffle(names)
    return {
        name: KILL if dice.random() < FAILPOINT_KILL_CHANCE else dice.choice(failpoints[name])
        for name in names[turn % FAILPOINT_TURNS :: FAILPOINT_TURNS]
    }


def _draw_faults(dice: random.Random, kinds: Collection[Kind], transport: str, *, until: float) -> Iterator[Fault]:
    """One after the other, several at a time, but never two on one target: a server and the way to it are one."""
    busy: dict[str, float] = {}
    at = dice.uniform(0.0, 1.0)
    while at < until:
        kind = dice.choice(sorted(kinds))
        target = dice.choice(targets_of(kind, transport))
        place = target.partition("/")[0]
        seconds = round(min(seconds_of(kind, dice), until + LAST_SECONDS / 2 - at), 2)
        if busy.get(place, 0.0) <= at:
            busy[place] = at + seconds + 1.0
            yield Fault(kind=kind, target=target, at=round(at, 2), seconds=seconds, amount=amount_of(kind, dice))
        at += dice.uniform(*GAP_SECONDS)


def _draw_tracks(dice: random.Random) -> Iterator[Track]:
    mixed = (-5, 0, 0, 0, 5)
    yield Track(name="plain", works=(Work(ref="chaos.plain"),), pace_seconds=0.2, cancel_chance=0.03)
    yield Track(name="native", works=(Work(ref="chaos.native", runner="native"),), pace_seconds=0.2, batch_max=5)
    yield Track(name="once", works=(Work(ref="chaos.once", idempotent=False),), pace_seconds=0.4, batch_max=2)
    yield Track(name="python", works=(Work(ref="chaos.python", runner="python"),), pace_seconds=1.0, batch_max=2)
    yield Track(
        name="long",
        works=(Work(ref="chaos.long", seconds=LONG_SECONDS),),
        pace_seconds=1.0,
        batch_max=2,
        cancel_chance=0.3,
    )
    yield Track(
        name="flaky",
        works=(Work(ref="chaos.flaky", retry_seconds=0.0), Work(ref="chaos.delayed", retry_seconds=0.5)),
        pace_seconds=0.7,
        batch_max=2,
    )
    for name in ("first", "second"):
        yield Track(
            name=name,
            works=(Work(ref=f"chaos.{name}", idempotent=dice.random() < 0.5),),
            limit=dice.randint(1, LIMIT_MAX),
            pace_seconds=0.5,
            cancel_chance=0.1,
            priorities=mixed if dice.random() < 0.5 else (0,),
        )
    yield Track(name="large", works=(Work(ref="chaos.large", large=True),), pace_seconds=3.0, batch_max=1)
    again = Work(ref="chaos.again", retry_seconds=dice.choice((0.0, 0.3)))
    yield Track(name="again", works=(again,), limit=dice.randint(1, LIMIT_MAX), pace_seconds=0.8, batch_max=2)
    limit = dice.randint(1, LIMIT_MAX)
    for number in range(GROUPS):
        grouped = Work(ref="chaos.grouped", seconds=0.05)
        host = {"host": f"host-{number}"}
        yield Track(name=f"host_{number}", works=(grouped,), limit=limit, parameters=host, pace_seconds=0.8)
    shared = (Work(ref="shared.one"), Work(ref="shared.two", seconds=0.1))
    yield Track(name="shared", works=shared, limit=dice.randint(1, LIMIT_MAX), pace_seconds=0.6, cancel_chance=0.05)


def write_plan(plan: Plan) -> str:
    """For a file."""
    return json.dumps(dataclasses.asdict(plan), indent=1)


def read_plan(text: str) -> Plan:
    """What `write_plan` wrote."""
    found = json.loads(text)
    tracks = [Track(**{**each, "works": [Work(**work) for work in each["works"]]}) for each in found["tracks"]]
    faults = [Fault(**{**each, "kind": Kind(each["kind"])}) for each in found["faults"]]
    return Plan(**{**found, "tracks": tracks, "faults": faults})


__all__ = ["SERVICES", "Fault", "Plan", "Track", "Work", "make_plan", "read_plan", "write_plan"]
