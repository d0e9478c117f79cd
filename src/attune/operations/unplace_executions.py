"""Takes attempts that never started away from their worker, so that another one gets them."""

from collections.abc import Callable, Collection, Sequence

from attune.domain.execution import Change, Status
from attune.domain.unplacing import Unplacing, decide_hand_back, decide_unplacing
from attune.operations.finish_executions import apply_endings
from attune.runtime.failpoints import afailpoint
from attune.storage import executions
from attune.storage.executions import Locked
from attune.storage.tx import Tx


async def unplace_executions(
    tx: Tx, items: Sequence[tuple[int, int]], *, why: Unplacing, stranded: Collection[int] = ()
) -> list[Change]:
    """Send back those still scheduled for the attempt named; one whose placements are spent, or is stranded, fails."""
    return await _move_scheduled(
        tx,
        items,
        lambda row: decide_unplacing(
            row.running,
            placements=row.placements,
            why=why,
            nowhere_to_go=row.running.execution_id in stranded,
        ),
    )


async def hand_back(tx: Tx, items: Sequence[tuple[int, int]], *, actor: str, reason: str) -> list[Change]:
    """A worker gives back what it cannot start."""
    return await _move_scheduled(tx, items, lambda row: decide_hand_back(row.running, actor=actor, reason=reason))


async def _move_scheduled(tx: Tx, items: Sequence[tuple[int, int]], decide: Callable[[Locked], Change]) -> list[Change]:
    """Pinned work stays where it is: only a start, a cancel or its TTL ends it."""
    # Both the current attempt and a stale one of the same execution may be named.
    wanted = set(items)
    locked = await executions.lock_many(tx, sorted({item[0] for item in wanted}))
    changes = [
        decide(row)
        for execution_id, row in locked.items()
        if row.running.status is Status.SCHEDULED and (execution_id, row.running.attempt) in wanted and not row.pinned
    ]
    await afailpoint("unplace.before_write")
    return await apply_endings(tx, changes, locked)
