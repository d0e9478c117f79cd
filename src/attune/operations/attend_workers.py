"""A worker's life in the database: it registers, sends heartbeats, hands back, drains, and goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from attune.operations.unplace_executions import hand_back
from attune.operations.workers.hint_room import hint_room
from attune.storage import assignments, workers
from attune.storage.assignments import Held, Renewed
from attune.storage.tx import Tx
from attune.storage.workers import Registration

# One draining pass hands back at most this many; the worker repeats it until nothing is left.
HANDED_BACK_MAX = 500
LEAVING = "worker is shutting down"
DRAINED = "worker is being drained"
FULL = "worker had no free slot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The answer to a heartbeat. No status: another process has taken the worker's name over."""

    status: str | None
    attempts: Sequence[Renewed]
    # It had been given up for lost, and may be given work again.
    revived: bool = False


async def register_worker(tx: Tx, registration: Registration) -> int:
    """Make a worker known and let what waits for room know of it; returns the worker's id."""
    worker_id = await workers.register(tx, registration)
    await hint_room(tx)
    return worker_id


async def renew_leases(tx: Tx, held: Sequence[Held], *, instance: UUID, lease_seconds: float) -> Pulse:
    """A heartbeat: renew exactly these leases and learn what the database thinks."""
    attempts = await assignments.renew_many(tx, held, instance=instance, lease_seconds=lease_seconds)
    beat = await workers.beat(tx, instance)
    return Pulse(status=beat.status, attempts=attempts, revived=beat.revived)


async def hand_back_full(tx: Tx, items: Sequence[tuple[int, int]], *, instance: UUID, actor: str) -> None:
    """Give back what finds no free slot, and keep placement away until one is really free."""
    await hand_back(tx, items, actor=actor, reason=FULL)
    await workers.set_full(tx, instance, full=True)


async def clear_full(tx: Tx, *, instance: UUID) -> None:
    """A slot is free again."""
    await workers.set_full(tx, instance, full=False)
    await hint_room(tx)


async def begin_drain(tx: Tx, *, instance: UUID) -> None:
    """Stop placements for good: none can slip behind this commit, and only a new start takes work again."""
    await workers.change_status(tx, instance, "draining", leaving=True)


async def hand_back_unstarted(tx: Tx, *, instance: UUID, actor: str, reason: str = LEAVING) -> int:
    """Give back everything placed here that was not started; returns how many there were."""
    items = await assignments.list_unstarted_on(tx, instance, limit=HANDED_BACK_MAX)
    return len(await hand_back(tx, items, actor=actor, reason=reason)) if items else 0


async def leave(tx: Tx, *, instance: UUID) -> None:
    """The worker stopped in good order."""
    await workers.change_status(tx, instance, "inactive", leaving=True)


async def mark_worker_lost(tx: Tx, *, name: str, pid: int) -> bool:
    """The worker's process is known to have ended."""
    return await workers.mark_lost_by_pid(tx, name, pid)
