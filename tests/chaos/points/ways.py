"""How a process is brought to a failpoint that the usual work does not lead to: what must happen to whom before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.kinds import BROKER, EXECUTORS, POSTGRES, WORKERS, Kind

# Passed by `attune up` while it prepares the database, before anything else runs.
MIGRATION = "migration.step.before_commit"
# Passed where a dispatch outlives its time.
EXPIRY = "dlq.expired.before_wake"
# A worker that holds what it was given for so long has a heart that beats; only the timeout takes the work from it.
STALL = "worker.claim.before"
STALLED = "sleep:13"
# Of all answers, those that would say whether it was committed.
THOSE_TO_COMMITS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A fault that leads to a point: to one of these, for so long; and how soon it is known to have been in vain."""

    kind: Kind
    targets: Sequence[str]
    seconds: float = 0.0
    amount: float = 0.0
    known_seconds: float = 8.0


# So long that a lease of six seconds is not lost, and everything that is noticed sooner is.
_STILL = Way(kind=Kind.PAUSE, targets=WORKERS, seconds=5.5)
# So long that dispatches expire.
_GONE = Way(kind=Kind.PAUSE, targets=WORKERS, seconds=14.0)
_DEAD = Way(kind=Kind.KILL, targets=WORKERS)
_STALLED = Way(kind=Kind.FAILPOINT, targets=(STALL,), known_seconds=6.0)
_STOPPED = Way(kind=Kind.STOP, targets=WORKERS)
# What is looked for once a minute or once an hour is looked for first when an executor has just started.
_FRESH = Way(kind=Kind.KILL, targets=EXECUTORS)

_WAYS: Mapping[str, Way] = {
    "dlq.bury.before_write": _STILL,
    EXPIRY: _GONE,
    "executor.leave": Way(kind=Kind.STOP, targets=EXECUTORS),
    # The others have no room for all that it ran.
    "place.admitted.before_write": _DEAD,
    "publish.returned.before_tx": Way(kind=Kind.QUEUE_DELETED, targets=WORKERS, known_seconds=2.0),
    "quarantine.before_write": _DEAD,
    "sweep.deadline.selected": _STILL,
    "sweep.housekeeping.partitions_made": _FRESH,
    "sweep.idle_lines.before_commit": _FRESH,
    "sweep.lost_workers.selected": _DEAD,
    "sweep.own_ttl.selected": _STILL,
    "sweep.scheduled_timeout.selected": _STALLED,
    "sweep.state_audit.selected": _FRESH,
    "unplace.before_write": _STALLED,
    "worker.drain.before_hand_back": _STOPPED,
    "worker.drain.before_leave": _STOPPED,
    "worker.registered.before_consume": _DEAD,
    "worker.settle.before_tx": Way(
        kind=Kind.ANSWERS_LOST,
        targets=[f"{POSTGRES}/{name}" for name in WORKERS],
        seconds=0.5,
        amount=THOSE_TO_COMMITS,
        known_seconds=2.0,
    ),
}
# A broker keeps what a worker that stands still has not acknowledged; only what it could not be given expires.
_WITH_BROKER: Mapping[str, Way] = {
    EXPIRY: Way(kind=Kind.BROKER_KILL, targets=(BROKER,), seconds=12.0),
}


def way_to(name: str, transport: str) -> Way | None:
    """What leads there; nothing where work, and people, come by."""
    return (_WITH_BROKER.get(name) if transport == BROKER else None) or _WAYS.get(name)


def also_armed(drawn: Mapping[str, str]) -> dict[str, str]:
    """What is armed, with what a way needs besides; without the points whose way is closed because of another."""
    stalling = {name for name, way in _WAYS.items() if way is _STALLED}
    if not stalling & drawn.keys():
        return dict(drawn)
    if STALL in drawn:
        return {name: action for name, action in drawn.items() if name not in stalling}
    return {**drawn, STALL: STALLED}
