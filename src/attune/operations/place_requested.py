"""Gives requested executions a worker as they arrive, or lets them wait for room.

One transaction at a time places a pool. Whoever arrives while others of its pool wait, waits behind them.
"""

from collections.abc import Callable, Sequence

from attune.domain.execution import Change, Status
from attune.domain.placement import Candidate, Requirements, Waiting, choose_workers, take_turns
from attune.operations.change_executions import change_executions
from attune.operations.keep_unplaced import keep_unplaced
from attune.operations.schedule_executions import assign, schedule_executions, scheduling_change
from attune.storage import actions, executions, unplaced, workers
from attune.storage.executions import Requested
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced

Draw = Callable[[], float]


async def place_requested(tx: Tx, ids: Sequence[int], *, actor: str, draw: Draw) -> None:
    """Place requested executions that are due."""
    requested = await executions.lock_requested(tx, ids)
    await _place_pinned(tx, requested, actor=actor)
    free = [item for item in requested if item.pinned_to is None]
    pools = sorted({item.pool for item in free})
    requirements = await actions.requirements_of(tx, pools) if pools else {}
    for pool in pools:
        await unplaced.lock_pool(tx, pool)
        mine = [item.waiting for item in free if item.pool == pool]
        chosen = await _choose(tx, mine, requirements[pool], draw=draw)
        await schedule_executions(tx, mine, chosen, current=Status.REQUESTED, actor=actor)
        left = [item for item in mine if item.execution_id not in chosen]
        await _let_wait(tx, left, pool=pool, actor=actor)


async def _choose(
    tx: Tx, waiting: Sequence[Waiting], requirements: Requirements, *, draw: Draw
) -> dict[int, Candidate]:
    if await unplaced.has_any(tx, requirements.pool):
        return {}
    candidates = await workers.lock_candidates(tx)
    return choose_workers(take_turns(waiting), candidates, requirements, draw=draw)


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


async def _let_wait(tx: Tx, left: Sequence[Waiting], *, pool: int, actor: str) -> None:
    changes = [
        Change(
            execution_id=item.execution_id,
            current=Status.REQUESTED,
            attempt=item.attempt,
            target=Status.SCHEDULING,
            actor=actor,
            reason="waits for room on a worker",
        )
        for item in left
    ]
    done = {change.execution_id for change in await change_executions(tx, changes)}
    await keep_unplaced(tx, [NewUnplaced.of(item, pool=pool) for item in left if item.execution_id in done])
