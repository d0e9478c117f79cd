"""What a second try keeps of the first: its worker, if it is pinned to one, and a search for a worker of its own."""

from __future__ import annotations

import pytest

from attune.domain.definitions import RetryPolicy, Runner
from attune.domain.execution import Failure
from attune.domain.messages import MessageType
from attune.domain.retry import Ending, Outcome
from attune.operations.expire_executions import expire_scheduled
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.place_admitted import place_admitted
from attune.storage import unplaced
from attune.storage.assignments import Held
from attune.storage.database import Database
from tests.witness.arrange import TestWorker, always_half, make_action, make_worker, place, request, start, statuses

TWICE = RetryPolicy(max_attempts=2)
FAILURE = Ending(outcome=Outcome.FAILED, failure=Failure(code="exit_code", message="exited with 3", by="test"))


async def fail_once(database: Database, worker: TestWorker, execution_id: int) -> None:
    (started,) = await start(database, worker, [(execution_id, 1)])
    held = Held(execution_id=execution_id, attempt=1, lease=started.lease)
    report = Report(held=held, worker_id=worker.worker_id, ending=FAILURE)
    async with database.transaction() as tx:
        assert await finish_executions(tx, [report], actor="test", draw=always_half) == [True]


async def test_pinned_work_is_tried_again_on_its_own_worker(database: Database) -> None:
    await make_action(database, retry=TWICE)
    worker = await make_worker(database, "pinned")
    await make_worker(database, "idle")
    (execution_id,) = await request(database, worker_id=worker.worker_id)
    await place(database, [execution_id])

    await fail_once(database, worker, execution_id)

    assert await statuses(database, [execution_id]) == ["requested"], "nobody else may be given it"
    await place(database, [execution_id])
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT attempt, worker_id, worker_instance FROM assignment")
    assert row is not None
    assert tuple(row) == (2, worker.worker_id, None)


async def test_a_placement_that_was_started_is_not_held_against_the_next_try(database: Database) -> None:
    await make_action(database, retry=TWICE)
    worker = await make_worker(database)
    (execution_id,) = await request(database)
    await place(database, [execution_id])
    await fail_once(database, worker, execution_id)
    async with database.transaction() as tx:
        assert await place_admitted(tx, await unplaced.list_pools(tx), actor="test", draw=always_half) == 1

    async with database.transaction() as tx:
        assert await expire_scheduled(tx, timeout_seconds=0, placements_max=2) == 1

    assert await statuses(database, [execution_id]) == ["scheduling"], "only one placement was not started"


@pytest.mark.parametrize("delay_seconds", [0.0, 60.0])
async def test_the_room_that_a_try_leaves_is_told_to_every_pool_in_which_somebody_waits(
    database: Database, delay_seconds: float
) -> None:
    await make_action(database, retry=RetryPolicy(max_attempts=2, delay_seconds=delay_seconds))
    await make_action(database, "demo.other", runner=Runner.SHELL, entry_point=None, command="true")
    worker = await make_worker(database, capacity=1)
    ids = await request(database) + await request(database, "demo.other")
    await place(database, ids)
    assert await statuses(database, ids) == ["scheduled", "scheduling"]
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")
        (pool,) = await unplaced.list_pools(tx)

    await fail_once(database, worker, ids[0])

    async with database.reading() as tx:
        told = await tx.fetch_column("SELECT items FROM outbox WHERE type = $1", MessageType.POOL_CHANGED)
    assert [pool, 0] in [item for items in told for item in items]
