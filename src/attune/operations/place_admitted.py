"""Gives those who wait for room a worker, as far as there is room."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from attune.domain.execution import Status
from attune.domain.messages import MessageType
from attune.domain.placement import Candidate, Waiting, choose_workers, take_turns, total_room
from attune.operations.schedule_executions import schedule_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import executions, placing, unplaced
from attune.storage.placing import OpenPool
from attune.storage.tx import Tx

Draw = Callable[[], float]

# Actions take turns within a window this many times as large as the room there is.
TURNS_WINDOW = 4
# At most this many executions are placed in one transaction.
PLACED_MAX = 500
# By then whoever had locked a row has committed or given up.
PASSED_OVER_SECONDS = 1.0


async def place_admitted(tx: Tx, pools: Sequence[int], *, actor: str, draw: Draw) -> int:
    """Place what waits in these pools; returns how many were placed."""
    return sum([await _place_pool(tx, pool, actor=actor, draw=draw) for pool in sorted(set(pools))])


async def _place_pool(tx: Tx, pool: int, *, actor: str, draw: Draw) -> int:
    # Workers are locked before executions here, which is safe: only a drain conflicts with FOR KEY SHARE, and it locks
    # nothing else.
    found = await placing.open_pool(tx, pool)
    if found is None:
        return 0
    waiting, chosen = await choose_for_waiting(tx, found, pool=pool, draw=draw)
    await afailpoint("place.admitted.before_write")
    await schedule_executions(tx, waiting, chosen, current=Status.SCHEDULING, actor=actor)
    return len(chosen)


async def choose_for_waiting(
    tx: Tx, found: OpenPool, *, pool: int, draw: Draw
) -> tuple[list[Waiting], dict[int, Candidate]]:
    """The next who wait in an open pool, locked, and the worker of each for whom there is room."""
    room = min(total_room(found.candidates, found.requirements), PLACED_MAX)
    if not room:
        return [], {}
    window = await unplaced.list_first(tx, pool, quarantined=found.quarantined, limit=room * TURNS_WINDOW)
    first = take_turns(window)[:room]
    current = await executions.lock_scheduling(tx, [item.execution_id for item in first])
    waiting = [
        replace(item, attempt=attempt, avoid=worker_id)
        for item in first
        if item.execution_id in current
        for attempt, worker_id in [current[item.execution_id]]
    ]
    if len(waiting) < len(first):
        # Somebody is moving them; whoever is left where it was, is looked at again.
        topic = MessageType.POOL_CHANGED
        tx.announce(topic, topic, [(pool, 0)], delay_seconds=PASSED_OVER_SECONDS)
    return waiting, choose_workers(waiting, found.candidates, found.requirements, draw=draw)
