"""Gives executions that were just let through a worker, or lets them wait for room.

One transaction at a time places a pool. Whoever arrives while others of its pool wait, waits behind them.
"""

from collections.abc import Callable, Sequence

from attune.domain.execution import Change, Status
from attune.domain.placement import Candidate, Waiting, choose_workers, take_turns
from attune.operations.change_executions import change_executions
from attune.operations.keep_unplaced import keep_unplaced
from attune.operations.schedule_executions import schedule_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import actions, unplaced, workers
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced

Draw = Callable[[], float]


async def place_newcomers(
    tx: Tx, waiting: Sequence[Waiting], *, pool: int, current: Status, actor: str, draw: Draw
) -> None:
    """Place executions of one pool; their rows are locked."""
    await unplaced.lock_pool(tx, pool)
    chosen = await _choose(tx, waiting, pool, draw=draw)
    await afailpoint("place.newcomers.before_write")
    await schedule_executions(tx, waiting, chosen, current=current, actor=actor)
    left = [item for item in waiting if item.execution_id not in chosen]
    await _let_wait(tx, left, pool=pool, current=current, actor=actor)


async def _choose(tx: Tx, waiting: Sequence[Waiting], pool: int, *, draw: Draw) -> dict[int, Candidate]:
    found = (await actions.list_pools(tx, [pool])).get(pool)
    if found is None or await unplaced.has_any(tx, pool, quarantined=found.quarantined):
        return {}
    candidates = await workers.lock_candidates(tx)
    free = [item for item in waiting if item.action_id not in found.quarantined]
    return choose_workers(take_turns(free), candidates, found.requirements, draw=draw)


async def _let_wait(tx: Tx, left: Sequence[Waiting], *, pool: int, current: Status, actor: str) -> None:
    changes = [
        Change(
            execution_id=item.execution_id,
            current=current,
            attempt=item.attempt,
            target=Status.SCHEDULING,
            actor=actor,
            reason="waits for room on a worker",
        )
        for item in left
    ]
    done = {change.execution_id for change in await change_executions(tx, changes)}
    await keep_unplaced(tx, [NewUnplaced.of(item, pool=pool) for item in left if item.execution_id in done])
