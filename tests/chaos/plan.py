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
from tests.chaos.points.ways import MIGRATION, also_armed

# How often a kind is among those of a seed: all of them at once would hide what some of them show.
KIND_CHANCE = 0.55
KINDS_MIN = 4
GAP_SECONDS = (2.0, 7.0)
# At the end of the chaos nothing new begins, so that everything is healed by itself.
LAST_SECONDS = 6.0
# In so many seeds that follow each other every failpoint is armed once.
FAILPOINT_TURNS = 5
FAILPOINT_KILL_CHANCE = 0.75
# Of those that are wanted, one seed takes so many: each costs a process, which comes back later each time.
WANTED_MAX = 24
# When those are let loose: early, because a way to them takes its time.
WANTED_PART = 0.6
KILL = "kill"
LIMIT_MAX = 3
GROUPS = 3
LONG_SECONDS = 4.0
ADAPTIVE_MAX = 4
# Longer than a dispatch takes, and shorter than a lease: a worker that stands still is noticed by this first.
HASTY_SECONDS = 4.0


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
    timeout_seconds: int = 60
    # For how long its dispatch may wait for a worker, where that is not as long as for all others.
    ttl_seconds: float | None = None
    # Its pack needs a package, and so an environment of its own.
    packaged: bool = False

    @property
    def overruns(self) -> bool:
        """Whether it takes longer than it may."""
        return self.seconds > self.timeout_seconds

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
    # The limit moves by itself, and is the highest it may be.
    adaptive: bool = False
    # Who waits longer in line is given up.
    queue_timeout_seconds: int | None = None


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

    @property
    def armed(self) -> dict[str, str]:
        """What each failpoint does."""
        return dict(entry.split("=", 1) for entry in self.failpoints)

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
    wanted: Collection[str] = (),
) -> Plan:
    """The plan of a seed; `failpoints` are the names that may be armed, each with what it can be armed with.

    Where some are `wanted`, a process shall die at each of these, as many as one seed can take.
    """
    dice = random.Random(f"{seed} {transport}")
    kinds = _draw_kinds(dice, transport)
    until = chaos_seconds - LAST_SECONDS
    drawn = _draw_wanted(dice, wanted) if wanted else _draw_failpoints(dice, failpoints or {}, turn=seed)
    armed = also_armed(drawn)
    faults = [
        *_draw_faults(dice, kinds, transport, until=until),
        *_let_loose([name for name in drawn if name in armed], dice, until=until, early=bool(wanted)),
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


def _draw_wanted(dice: random.Random, wanted: Collection[str]) -> dict[str, str]:
    names = sorted(wanted)
    dice.shuffle(names)
    return dict.fromkeys(names[:WANTED_MAX], KILL)


def _let_loose(names: Sequence[str], dice: random.Random, *, until: float, early: bool) -> Iterator[Fault]:
    """Each at its time, and from then on for as long as it takes."""
    for name in names:
        if name != MIGRATION:
            at = round(dice.uniform(0, until * WANTED_PART if early else until), 2)
            yield Fault(kind=Kind.FAILPOINT, target=name, at=at, seconds=round(until - at, 2))


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
    yield from _rare_tracks()


def _rare_tracks() -> Iterator[Track]:
    """Work that is given up, moved or prepared in ways that other work is not."""
    brief = Work(ref="chaos.brief", seconds=30.0, timeout_seconds=1)
    yield Track(name="brief", works=(brief,), pace_seconds=0.8, batch_max=2, cancel_chance=0.05)
    hasty = Work(ref="chaos.hasty", ttl_seconds=HASTY_SECONDS)
    yield Track(name="hasty", works=(hasty,), pace_seconds=0.4)
    impatient = Work(ref="chaos.impatient", seconds=0.8)
    yield Track(name="impatient", works=(impatient,), limit=1, pace_seconds=1.0, queue_timeout_seconds=2)
    adaptive = Work(ref="chaos.adaptive", seconds=0.05)
    yield Track(name="adaptive", works=(adaptive,), limit=ADAPTIVE_MAX, adaptive=True, pace_seconds=0.5)
    packaged = Work(ref="extra.packaged", runner="python", packaged=True)
    yield Track(name="packaged", works=(packaged,), pace_seconds=1.5, batch_max=1)


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
