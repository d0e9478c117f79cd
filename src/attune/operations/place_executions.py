"""Gives executions that need a worker one: the requested ones as they arrive, the unplaced ones as room appears.

One transaction at a time places a pool. Whoever arrives while others of its pool wait, waits behind them.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from attune.domain.execution import Change, Status
from attune.domain.messages import MessageType, dispatch_topic
from attune.domain.placement import Candidate, Requirements, Waiting, choose_workers, take_turns, total_room
from attune.operations.change_executions import change_executions
from attune.storage import actions, assignments, executions, unplaced, workers
from attune.storage.assignments import NewAssignment
from attune.storage.executions import Requested
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced

Draw = Callable[[], float]

# Actions take turns within a window this many times as large as the room there is.
TURNS_WINDOW = 4
# At most this many executions are placed in one transaction.
PLACED_MAX = 500


async def place_requested(tx: Tx, ids: Sequence[int], *, actor: str, draw: Draw) -> None:
    """Place requested executions that are due, or let them wait for room."""
    requested = await executions.lock_requested(tx, ids)
    await _place_pinned(tx, [item for item in requested if item.pinned_to is not None], actor=actor)
    free = [item for item in requested if item.pinned_to is None]
    pools = sorted({item.pool for item in free})
    requirements = await actions.requirements_of(tx, pools) if pools else {}
    for pool in pools:
        await unplaced.lock_pool(tx, pool)
        mine = [item for item in free if item.pool == pool]
        await _place_newcomers(tx, mine, requirements[pool], actor=actor, draw=draw)


async def place_admitted(tx: Tx, pools: Sequence[int], *, actor: str, draw: Draw) -> int:
    """Place what waits in these pools, as far as there is room; returns how many."""
    placed = 0
    requirements = await actions.requirements_of(tx, pools) if pools else {}
    for pool in sorted(requirements):
        await unplaced.lock_pool(tx, pool)
        candidates = await workers.lock_candidates(tx)
        room = min(total_room(candidates, requirements[pool]), PLACED_MAX)
        if not room:
            continue
        first = take_turns(await unplaced.list_first(tx, pool, limit=room * TURNS_WINDOW))[:room]
        current = await executions.lock_scheduling(tx, [item.execution_id for item in first])
        waiting = [_with_attempt(item, current) for item in first if item.execution_id in current]
        chosen = choose_workers(waiting, candidates, requirements[pool], draw=draw)
        await _schedule(tx, waiting, chosen, current=Status.SCHEDULING, actor=actor)
        placed += len(chosen)
    return placed


def _with_attempt(item: Waiting, current: dict[int, tuple[int, int | None]]) -> Waiting:
    attempt, worker_id = current[item.execution_id]
    return Waiting(
        execution_id=item.execution_id,
        attempt=attempt,
        action_id=item.action_id,
        priority=item.priority,
        avoid=worker_id,
    )


async def _place_newcomers(
    tx: Tx, requested: Sequence[Requested], requirements: Requirements, *, actor: str, draw: Draw
) -> None:
    waiting = [
        Waiting(
            execution_id=item.execution_id, attempt=item.attempt, action_id=item.action_id, priority=item.priority
        )
        for item in requested
    ]
    chosen: dict[int, Candidate] = {}
    if not await unplaced.has_any(tx, requirements.pool):
        candidates = await workers.lock_candidates(tx)
        chosen = choose_workers(take_turns(waiting), candidates, requirements, draw=draw)
        await _schedule(tx, waiting, chosen, current=Status.REQUESTED, actor=actor)
    left = [item for item in waiting if item.execution_id not in chosen]
    await _let_wait(tx, left, pool=requirements.pool, actor=actor)


async def _schedule(
    tx: Tx, waiting: Sequence[Waiting], chosen: dict[int, Candidate], *, current: Status, actor: str
) -> None:
    changes = [
        Change(
            execution_id=item.execution_id,
            current=current,
            attempt=item.attempt,
            target=Status.SCHEDULED,
            worker_id=chosen[item.execution_id].worker_id,
            placements_added=1,
            actor=actor,
        )
        for item in waiting
        if item.execution_id in chosen
    ]
    done = await change_executions(tx, changes)
    await _assign(tx, done, {item: UUID(candidate.instance) for item, candidate in chosen.items()})


async def _place_pinned(tx: Tx, requested: Sequence[Requested], *, actor: str) -> None:
    """Schedule pinned work on its worker, alive or not: only a start, a cancel or its TTL ends the wait."""
    changes = [
        Change(
            execution_id=item.execution_id,
            current=Status.REQUESTED,
            attempt=item.attempt,
            target=Status.SCHEDULED,
            worker_id=item.pinned_to,
            placements_added=1,
            actor=actor,
            reason="pinned to this worker",
        )
        for item in requested
    ]
    await _assign(tx, await change_executions(tx, changes), {})


async def _assign(tx: Tx, placed: Sequence[Change], instances: dict[int, UUID]) -> None:
    new = [
        NewAssignment(
            execution_id=change.execution_id,
            attempt=change.next_attempt,
            worker_id=change.worker_id,
            worker_instance=instances.get(change.execution_id),
        )
        for change in placed
        if change.worker_id is not None
    ]
    if new:
        await assignments.insert_many(tx, new)
    for item in new:
        tx.announce(
            dispatch_topic(item.worker_id), MessageType.EXECUTION_DISPATCHED, [(item.execution_id, item.attempt)]
        )


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
    rows = [
        NewUnplaced(execution_id=item.execution_id, pool=pool, priority=item.priority, action_id=item.action_id)
        for item in left
        if item.execution_id in done
    ]
    await keep_unplaced(tx, rows)


async def keep_unplaced(tx: Tx, rows: Sequence[NewUnplaced]) -> None:
    """Let executions wait for room, with the hint that keeps the wake-up from being lost.

    Room may have appeared since it was looked for; without the hint nobody would look again.
    """
    if not rows:
        return
    await unplaced.insert_many(tx, rows)
    pools = sorted({row.pool for row in rows})
    tx.announce(MessageType.POOL_CHANGED, MessageType.POOL_CHANGED, [(pool, 0) for pool in pools])
