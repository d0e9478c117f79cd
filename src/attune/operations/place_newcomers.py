"""Gives executions that were just let through a worker, or lets them wait for room.

One transaction at a time places a pool. Whoever arrives while others of its pool wait, waits behind them.
"""

from collections.abc import Callable, Mapping, Sequence

from attune.domain.execution import Change, Status
from attune.domain.placement import Candidate, Waiting, choose_workers, take_turns
from attune.operations.change_executions import change_executions
from attune.operations.keep_unplaced import keep_unplaced
from attune.operations.schedule_executions import schedule_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import placing
from attune.storage.placing import OpenPool
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced

Draw = Callable[[], float]


async def place_newcomers(
    tx: Tx, waiting: Sequence[Waiting], *, pool: int, current: Status, actor: str, draw: Draw
) -> None:
    """Place executions of one pool; their rows are locked."""
    found = await placing.open_pool(tx, pool)
    chosen = choose_for_newcomers(found, waiting, draw=draw)
    await write_newcomers(tx, waiting, chosen, pool=pool, current=current, actor=actor)


def choose_for_newcomers(found: OpenPool | None, waiting: Sequence[Waiting], *, draw: Draw) -> dict[int, Candidate]:
    """The worker of each for whom there is room."""
    if found is None or found.awaited:
        return {}
    free = [item for item in waiting if item.action_id not in found.quarantined]
    return choose_workers(take_turns(free), found.candidates, found.requirements, draw=draw)


async def write_newcomers(
    tx: Tx, waiting: Sequence[Waiting], chosen: Mapping[int, Candidate], *, pool: int, current: Status, actor: str
) -> None:
    """Schedule those for whom a worker was chosen, and let the others wait for room."""
    await afailpoint("place.newcomers.before_write")
    await schedule_executions(tx, waiting, chosen, current=current, actor=actor)
    left = [item for item in waiting if item.execution_id not in chosen]
    await _let_wait(tx, left, pool=pool, current=current, actor=actor)


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
