"""What happens to requested executions when they are due: into their line, or to a worker."""

from collections.abc import Callable, Sequence

from attune.domain.execution import Status
from attune.operations.change_executions import change_executions
from attune.operations.lines.find_lines import find_lines
from attune.operations.lines.rejoin_lines import rejoin_lines
from attune.operations.place_newcomers import place_newcomers
from attune.operations.schedule_executions import assign, scheduling_change
from attune.storage import executions
from attune.storage.executions import Requested
from attune.storage.tx import Tx


async def place_requested(
    tx: Tx, ids: Sequence[int], *, max_queue_length: int, actor: str, draw: Callable[[], float]
) -> None:
    """Let those whose action is governed by a policy join their line, and place the others."""
    due = await executions.list_requested(tx, ids)
    places = await find_lines(tx, due, max_queue_length=max_queue_length)
    placed = list(zip(due, places, strict=True))
    limited = [(item, *place.line) for item, place in placed if place.line is not None]
    if limited:
        await rejoin_lines(tx, limited, actor=actor)
    free = await executions.lock_requested(tx, [item.execution_id for item, place in placed if place.line is None])
    inherited = [(item.execution_id, place.inherits) for item, place in placed if place.inherits is not None]
    if inherited:
        await executions.save_inherited(tx, inherited)
    await _place_pinned(tx, free, actor=actor)
    for pool in sorted({item.pool for item in free if item.pinned_to is None}):
        mine = [item.waiting for item in free if item.pool == pool and item.pinned_to is None]
        await place_newcomers(tx, mine, pool=pool, current=Status.REQUESTED, actor=actor, draw=draw)


async def _place_pinned(tx: Tx, requested: Sequence[Requested], *, actor: str) -> None:
    """Schedule pinned work on its worker, alive or not: only a start, a cancel or its TTL ends the wait."""
    changes = [
        scheduling_change(
            item.waiting, item.pinned_to, current=Status.REQUESTED, actor=actor, reason="pinned to this worker"
        )
        for item in requested
        if item.pinned_to is not None
    ]
    await assign(tx, await change_executions(tx, changes), {})
