"""From a request to a terminal state, and every way a worker can spoil it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from attune.domain.execution import Failure, Status
from attune.domain.messages import MessageType
from attune.domain.retry import Ending, Outcome
from attune.operations.attend_workers import hand_back_full, hand_back_unstarted, renew_leases
from attune.operations.cancel_execution import cancel_execution
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.place_admitted import place_admitted
from attune.operations.release_executions import release_executions
from attune.operations.rescue_lost import rescue_lost
from attune.storage.assignments import Held
from attune.storage.database import Database
from tests.witness.arrange import (
    TestWorker,
    always_half,
    make_action,
    make_worker,
    place,
    request,
    start,
    statuses,
)

SECONDS_MAX = 30
SUCCESS = Ending(outcome=Outcome.SUCCEEDED, result={"n": 1})
FAILURE = Ending(
    outcome=Outcome.FAILED, failure=Failure(code="exit_code", message="exited with 3", by="test"), exit_code=3
)


async def finish(database: Database, worker: TestWorker, held: list[Held], ending: Ending = SUCCESS) -> list[bool]:
    reports = [Report(held=item, worker_id=worker.worker_id, ending=ending) for item in held]
    async with database.transaction() as tx:
        return await finish_executions(tx, reports, actor="worker test", draw=always_half)


async def run_to_running(database: Database, worker: TestWorker, *, count: int = 1) -> list[Held]:
    ids = await request(database, count=count)
    await place(database, ids)
    started = await start(database, worker, [(execution_id, 1) for execution_id in ids])
    return [
        Held(execution_id=item.startable.execution_id, attempt=item.startable.attempt, lease=item.lease)
        for item in started
    ]


async def outbox_topics(database: Database) -> list[str]:
    async with database.reading() as tx:
        return await tx.fetch_column("SELECT topic FROM outbox ORDER BY id")


async def test_a_request_is_announced_in_the_transaction_that_accepts_it(database: Database) -> None:
    await make_action(database)

    ids = await request(database, count=150)

    assert ids == sorted(ids)
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT type, items FROM outbox ORDER BY id")
    assert [len(row["items"]) for row in rows] == [100, 50]
    assert {row["type"] for row in rows} == {MessageType.EXECUTION_REQUESTED}


async def test_an_execution_goes_from_request_to_success(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database)

    held = await run_to_running(database, worker)
    assert await finish(database, worker, held) == [True]

    async with database.reading() as tx:
        history = await tx.fetch(
            "SELECT from_status, to_status, attempt FROM execution_history WHERE execution_id = $1 ORDER BY id",
            held[0].execution_id,
        )
        left = await tx.fetch_value("SELECT count(*) FROM assignment")
    assert [(row["from_status"], row["to_status"], row["attempt"]) for row in history] == [
        (None, "requested", 0),
        ("requested", "scheduled", 1),
        ("scheduled", "running", 1),
        ("running", "succeeded", 1),
    ]
    assert left == 0
    assert await outbox_topics(database) == [
        "execution.requested",
        f"execution.dispatch.worker.{worker.worker_id}",
        "execution.completed",
    ]


async def test_what_finds_no_room_waits_and_is_placed_when_room_appears(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, capacity=4)
    ids = await request(database, count=7)

    await place(database, ids)
    assert await statuses(database, ids) == ["scheduled"] * 5 + ["scheduling"] * 2

    started = await start(database, worker, [(execution_id, 1) for execution_id in ids[:5]])
    held = [Held(execution_id=item.startable.execution_id, attempt=1, lease=item.lease) for item in started]
    await finish(database, worker, held)
    async with database.transaction() as tx:
        assert await release_executions(tx, ids[:5], actor="executor test", draw=always_half) == 2
    assert await statuses(database, ids) == ["succeeded"] * 5 + ["scheduled"] * 2


async def test_a_newcomer_waits_behind_those_of_its_pool_who_wait_already(database: Database) -> None:
    await make_action(database)
    first = await request(database)
    await place(database, first)
    await make_worker(database)

    second = await request(database)
    await place(database, second)
    assert await statuses(database, first + second) == ["scheduling", "scheduling"]

    async with database.transaction() as tx:
        pool = await tx.fetch_value("SELECT pool FROM unplaced LIMIT 1")
        await place_admitted(tx, [pool], actor="executor test", draw=always_half)
    assert await statuses(database, first + second) == ["scheduled", "scheduled"]


async def test_placing_waits_for_nobody_who_is_being_moved_and_looks_again_later(database: Database) -> None:
    await make_action(database)
    ids = await request(database, count=3)
    await place(database, ids)
    await make_worker(database)
    async with database.transaction() as holder:
        await holder.execute("SELECT FROM execution WHERE id = $1 FOR NO KEY UPDATE", ids[0])
        async with asyncio.timeout(SECONDS_MAX), database.transaction() as tx:
            await tx.execute("DELETE FROM outbox")
            pool = await tx.fetch_value("SELECT pool FROM unplaced LIMIT 1")
            assert await place_admitted(tx, [pool], actor="executor test", draw=always_half) == 2
    assert await statuses(database, ids) == ["scheduling", "scheduled", "scheduled"]
    assert "pool.changed" in await outbox_topics(database)


async def test_waiting_for_room_leaves_a_hint_so_that_no_wake_up_is_lost(database: Database) -> None:
    await make_action(database)
    ids = await request(database)

    await place(database, ids)

    assert "pool.changed" in await outbox_topics(database)


async def test_a_duplicate_dispatch_starts_nothing(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database)
    ids = await request(database)
    await place(database, ids)

    first, second = await asyncio.gather(start(database, worker, [(ids[0], 1)]), start(database, worker, [(ids[0], 1)]))

    assert len(first) + len(second) == 1


async def test_another_instance_of_the_same_name_cannot_start_what_was_placed_on_its_predecessor(
    database: Database,
) -> None:
    await make_action(database)
    await make_worker(database, name="w")
    ids = await request(database)
    await place(database, ids)
    successor = await make_worker(database, name="w")

    assert await start(database, successor, [(ids[0], 1)]) == []


async def test_a_late_result_changes_nothing_and_is_kept(database: Database) -> None:
    await make_action(database, idempotent=True)
    worker = await make_worker(database, heartbeat_interval=0.5)
    held = await run_to_running(database, worker)
    await expire_leases(database)
    await rescue(database)
    await replace_everything(database)
    again = await start(database, worker, [(held[0].execution_id, 2)])
    assert len(again) == 1

    assert await finish(database, worker, held) == [False]

    assert await statuses(database, [held[0].execution_id]) == ["running"]
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM late_result") == 1


async def expire_leases(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET lease_until = now() - $1::interval", timedelta(minutes=5))


async def rescue(database: Database) -> int:
    async with database.transaction() as tx:
        return await rescue_lost(tx, placements_max=5, draw=always_half)


async def replace_everything(database: Database) -> None:
    async with database.transaction() as tx:
        await release_executions(tx, [], actor="executor test", draw=always_half)


async def test_an_idempotent_execution_gets_its_next_attempt_when_its_worker_is_lost(database: Database) -> None:
    await make_action(database, idempotent=True)
    worker = await make_worker(database, heartbeat_interval=0.5)
    held = await run_to_running(database, worker, count=3)
    await expire_leases(database)

    assert await rescue(database) == 3
    await replace_everything(database)

    async with database.reading() as tx:
        rows = await tx.fetch("SELECT status, attempt, tries FROM execution")
    assert {(row["status"], row["attempt"], row["tries"]) for row in rows} == {("scheduled", 2, 1)}
    assert len(held) == 3


async def test_any_other_execution_fails_as_worker_lost(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, heartbeat_interval=0.5)
    await run_to_running(database, worker)
    await expire_leases(database)

    await rescue(database)

    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, error FROM execution")
    assert row is not None
    assert (row["status"], row["error"]["code"]) == ("failed", "worker_lost")


async def test_two_replicas_that_sweep_at_once_rescue_each_execution_once(database: Database) -> None:
    await make_action(database, idempotent=True)
    worker = await make_worker(database, heartbeat_interval=0.5, capacity=20)
    await run_to_running(database, worker, count=20)
    await expire_leases(database)

    assert sum(await asyncio.gather(*(rescue(database) for _ in range(4)))) == 20

    async with database.reading() as tx:
        moves = await tx.fetch_value("SELECT count(*) FROM execution_history WHERE to_status = 'scheduling'")
    assert moves == 20


async def test_a_good_lease_is_never_reclaimed_whatever_the_worker_row_says(database: Database) -> None:
    await make_action(database, idempotent=True)
    worker = await make_worker(database, heartbeat_interval=0.5)
    await run_to_running(database, worker)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET status = 'lost', last_heartbeat = now() - interval '1 hour'")

    assert await rescue(database) == 0


async def test_what_a_lost_worker_never_started_goes_elsewhere_at_once(database: Database) -> None:
    await make_action(database)
    await make_worker(database, heartbeat_interval=0.5, name="gone")
    ids = await request(database)
    await place(database, ids)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET status = 'lost'")
    other = await make_worker(database, heartbeat_interval=0.5, name="other")

    assert await rescue(database) == 1
    await replace_everything(database)

    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, attempt, worker, tries FROM execution WHERE id = $1", ids[0])
    assert row is not None
    assert tuple(row) == ("scheduled", 2, other.worker_id, 0)


async def test_placements_are_bounded(database: Database) -> None:
    await make_action(database)
    ids = await request(database)
    for _ in range(5):
        await make_worker(database, heartbeat_interval=0.5, name="w")
        await place(database, ids)
        await replace_everything(database)
        async with database.transaction() as tx:
            await tx.execute("UPDATE worker SET status = 'lost'")
        await rescue(database)

    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, error FROM execution")
    assert row is not None
    assert (row["status"], row["error"]["code"]) == ("failed", "placement_exhausted")


async def test_handing_back_does_not_count_as_a_placement_and_marks_the_worker_full(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database)
    ids = await request(database)
    await place(database, ids)

    async with database.transaction() as tx:
        await hand_back_full(tx, [(ids[0], 1)], instance=worker.instance, actor="worker test")

    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, placements FROM execution")
        full = await tx.fetch_value("SELECT marked_full FROM worker")
    assert row is not None
    assert tuple(row) == ("scheduling", 0)
    assert full is True


async def test_a_draining_worker_gives_back_everything_it_did_not_start(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database)
    ids = await request(database, count=3)
    await place(database, ids)
    await start(database, worker, [(ids[0], 1)])

    async with database.transaction() as tx:
        assert await hand_back_unstarted(tx, instance=worker.instance, actor="worker test") == 2

    assert await statuses(database, ids) == ["running", "scheduling", "scheduling"]


async def test_a_heartbeat_renews_what_it_lists_and_names_what_it_does_not(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database)
    held = await run_to_running(database, worker, count=2)
    async with database.transaction() as tx:
        await cancel_execution(tx, held[0].execution_id, actor="ana")

    async with database.transaction() as tx:
        pulse = await renew_leases(tx, [held[0]], instance=worker.instance, lease_seconds=30)

    told = {item.execution_id: (item.known, item.cancel_requested) for item in pulse.attempts}
    assert told == {held[0].execution_id: (True, True), held[1].execution_id: (False, False)}
    assert pulse.status == "active"


@pytest.mark.parametrize("stage", ["requested", "scheduling", "scheduled"])
async def test_cancelling_what_has_not_started_ends_it_at_once(database: Database, stage: str) -> None:
    await make_action(database)
    if stage == "scheduled":
        await make_worker(database)
    ids = await request(database)
    if stage != "requested":
        await place(database, ids)
    assert await statuses(database, ids) == [stage]

    async with database.transaction() as tx:
        await cancel_execution(tx, ids[0], actor="ana")

    assert await statuses(database, ids) == ["cancelled"]
    async with database.reading() as tx:
        left = await tx.fetch_value("SELECT (SELECT count(*) FROM assignment) + (SELECT count(*) FROM unplaced)")
    assert left == 0


async def test_cancelling_a_running_execution_asks_its_worker_and_is_never_retried(database: Database) -> None:
    await make_action(database, idempotent=True)
    worker = await make_worker(database)
    held = await run_to_running(database, worker)

    for _ in range(2):
        async with database.transaction() as tx:
            await cancel_execution(tx, held[0].execution_id, actor="ana")
    assert await statuses(database, [held[0].execution_id]) == ["canceling"]
    topics = await outbox_topics(database)
    assert topics.count(f"execution.cancel.worker.{worker.worker_id}") == 1

    await finish(database, worker, held, FAILURE)
    assert await statuses(database, [held[0].execution_id]) == [Status.CANCELLED]
