"""Time, fresh ids and randomness: the only place that asks the machine for them.

Decisions never call these; they take `now`, ids and draws as arguments.
"""

import random
import secrets
import time
import uuid
from datetime import UTC, datetime
from typing import Final

_DICE: Final = random.SystemRandom()


def utc_now() -> datetime:
    """This machine's wall clock. Leases, deadlines and order use the database's, never this one."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never jumps; only differences mean anything."""
    return time.monotonic()


def new_uuid() -> uuid.UUID:
    return uuid.uuid4()


def random_bytes(count: int) -> bytes:
    """Bytes fit for keys and tokens."""
    return secrets.token_bytes(count)


def draw() -> float:
    """A number from 0 up to, not including, 1."""
    return _DICE.random()


def jittered_backoff(failures: int, *, first_seconds: float, ceiling_seconds: float, drawn: float) -> float:
    """Seconds to wait after so many failures: doubling up to the ceiling, then somewhere in its upper half.

    The lower half is left out so that a pause never shrinks to nothing.
    """
    doublings = min(max(failures - 1, 0), 62)  # Beyond this a float holds nothing new.
    return min(first_seconds * 2.0**doublings, ceiling_seconds) * (0.5 + drawn / 2)
