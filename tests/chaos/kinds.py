"""The kinds of faults: whom each may strike, for how long, and how hard."""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

POSTGRES = "postgres"
BROKER = "rabbitmq"
API = "api-1"
EXECUTORS = ("executor-1", "executor-2", "executor-3")
WORKERS = ("worker-1", "worker-2", "worker-3")
SERVICES = (API, *EXECUTORS, *WORKERS, "sensor-1", "notifier-1")
SCALE = ("--scale", f"executor={len(EXECUTORS)}", "--scale", f"worker={len(WORKERS)}")
EVERYTHING = "everything"
SKEW_SECONDS = 3600.0


class Kind(StrEnum):
    """What can be done to a platform."""

    KILL = "kill"
    STOP = "stop"
    KILL_TOGETHER = "kill together"
    PAUSE = "pause"
    CUT = "cut"
    BLACK_HOLE = "black hole"
    ANSWERS_LOST = "answers lost"
    POSTGRES_CRASH = "postgres crash"
    POSTGRES_BACKEND = "postgres backend"
    POSTGRES_SESSION = "postgres session"
    BROKER_KILL = "broker kill"
    BROKER_WIPE = "broker wipe"
    QUEUE_DELETED = "queue deleted"
    SLOW_SYNC = "slow sync"
    CLOCK_SKEW = "clock skew"
    DISK_FULL = "disk full"
    FAILPOINT = "failpoint"


NEEDS_BROKER = frozenset({Kind.BROKER_KILL, Kind.BROKER_WIPE, Kind.QUEUE_DELETED})
NEEDS_SHIM = frozenset({Kind.SLOW_SYNC, Kind.CLOCK_SKEW, Kind.DISK_FULL})
ON_THE_NETWORK = frozenset({Kind.CUT, Kind.BLACK_HOLE, Kind.ANSWERS_LOST})

# How long each lasts: a lease is six seconds, and what is shorter must cost nothing.
_SECONDS = {
    Kind.PAUSE: ((0.5, 3.0), (9.0, 14.0)),
    Kind.BLACK_HOLE: ((0.5, 3.0), (6.0, 12.0)),
    Kind.ANSWERS_LOST: ((0.3, 2.0),),
    Kind.POSTGRES_CRASH: ((0.0, 3.0),),
    Kind.BROKER_KILL: ((0.0, 2.0),),
    Kind.BROKER_WIPE: ((0.0, 2.0),),
    Kind.SLOW_SYNC: ((3.0, 10.0),),
    Kind.CLOCK_SKEW: ((5.0, 25.0),),
    Kind.DISK_FULL: ((3.0, 10.0),),
}


_TARGETS = {
    **dict.fromkeys((Kind.POSTGRES_CRASH, Kind.POSTGRES_BACKEND, Kind.POSTGRES_SESSION, Kind.SLOW_SYNC), (POSTGRES,)),
    **dict.fromkeys(NEEDS_BROKER, (BROKER,)),
    Kind.QUEUE_DELETED: WORKERS,
    Kind.DISK_FULL: WORKERS,
    Kind.KILL_TOGETHER: ("executor", "worker", EVERYTHING),
    Kind.CLOCK_SKEW: (API, *EXECUTORS, *WORKERS),
}


def targets_of(kind: Kind, transport: str) -> Sequence[str]:
    """Whom it may strike. `postgres/worker-2` is the way from that worker to PostgreSQL."""
    if kind in ON_THE_NETWORK:
        servers = (POSTGRES, BROKER) if transport == BROKER else (POSTGRES,)
        ways = [f"{server}/{name}" for server in servers for name in (API, *EXECUTORS, *WORKERS)]
        # Whole outages as often as those of one service; for the API's own clients there is but one way.
        return [*ways, *servers * (len(ways) // len(servers)), *("api",) * len(servers)]
    # Where more can go wrong, more is tried.
    return _TARGETS.get(kind, (*SERVICES, *EXECUTORS, *WORKERS, *WORKERS))


def seconds_of(kind: Kind, dice: random.Random) -> float:
    """For how long; nothing where it is over at once."""
    ranges = _SECONDS.get(kind)
    return dice.uniform(*dice.choice(ranges)) if ranges else 0.0


def amount_of(kind: Kind, dice: random.Random) -> float:
    """How much: seconds of skew, seconds for each sync, or whether a full disk also says so."""
    if kind is Kind.CLOCK_SKEW:
        return dice.choice((-SKEW_SECONDS, SKEW_SECONDS))
    if kind is Kind.SLOW_SYNC:
        return round(dice.uniform(0.05, 0.4), 2)
    return float(dice.choice((1, 2))) if kind is Kind.DISK_FULL else 0.0
