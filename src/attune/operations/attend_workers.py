"""A worker's life in the database: it registers, sends heartbeats, hands back, drains, and goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from attune.domain.messages import MessageType
from attune.operations.unplace_executions import hand_back
from attune.storage import assignments, lines, unplaced, workers
from attune.storage.assignments import Held, Renewed
from attune.storage.tx import Tx
from attune.storage.workers import Registration

# One draining pass hands back at most this many; the worker repeats it until nothing is left.
HANDED_BACK_MAX = 500
# The state audit wakes the rest.
WOKEN_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The answer to a heartbeat. No status: another process has taken the worker's name over."""

    status: str | None
    attempts: Sequence[Renewed]


async def register_worker(tx: Tx, registration: Registration) -> int:
    """Make a worker known and let what waits for room know of it; returns the worker's id."""
    worker_id = await workers.register(tx, registration)
    await hint_room(tx)
    return worker_id


async def renew_leases(tx: Tx, held: Sequence[Held], *, instance: UUID, lease_seconds: float) -> Pulse:
    """A heartbeat: renew exactly these leases and learn what the database thinks."""
    attempts = await assignments.renew_many(tx, held, instance=instance, lease_seconds=lease_seconds)
    return Pulse(status=await workers.beat(tx, instance), attempts=attempts)


async def hand_back_full(tx: Tx, items: Sequence[tuple[int, int]], *, instance: UUID, actor: str) -> None:
    """Give back what finds no free slot, and keep placement away until one is really free."""
    await hand_back(tx, items, actor=actor, reason="worker had no free slot")
    await workers.set_full(tx, instance, full=True)


async def clear_full(tx: Tx, *, instance: UUID) -> None:
    """A slot is free again."""
    await workers.set_full(tx, instance, full=False)
    await hint_room(tx)


async def begin_drain(tx: Tx, *, instance: UUID) -> None:
    """Stop placements: none can slip behind this commit."""
    await workers.change_status(tx, instance, "draining")


async def hand_back_unstarted(tx: Tx, *, instance: UUID, actor: str) -> int:
    """Give back everything placed here that was not started; returns how many there were."""
    items = await assignments.list_unstarted_on(tx, instance, limit=HANDED_BACK_MAX)
    return len(await hand_back(tx, items, actor=actor, reason="worker is shutting down")) if items else 0


async def leave(tx: Tx, *, instance: UUID) -> None:
    """The worker stopped in good order."""
    await workers.change_status(tx, instance, "inactive")


async def mark_worker_lost(tx: Tx, *, name: str, pid: int) -> bool:
    """The worker's process is known to have ended."""
    return await workers.mark_lost_by_pid(tx, name, pid)


async def hint_room(tx: Tx) -> None:
    """Have every pool in which somebody waits looked at, and every line that had no worker for its head."""
    if pools := await unplaced.list_pools(tx):
        tx.announce(MessageType.POOL_CHANGED, MessageType.POOL_CHANGED, [(pool, 0) for pool in pools])
    if held := await lines.list_held(tx, limit=WOKEN_MAX):
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0) for line_id in held])
