"""A running executor: what it is told leads to what it does."""

from __future__ import annotations

import pytest

from attune.runtime.metrics import build_metrics
from attune.storage.database import Database
from tests.witness.arrange import make_action, make_worker, request, statuses
from tests.witness.executors import executor
from tests.witness.waiting import until


async def all_are(database: Database, ids: list[int], status: str) -> bool:
    return set(await statuses(database, ids)) == {status}


async def test_a_requested_execution_is_placed_on_a_worker(database: Database) -> None:
    await make_action(database)
    await make_worker(database, capacity=100)
    async with executor(database):
        ids = await request(database, count=50)
        await until(lambda: all_are(database, ids, "scheduled"))


async def test_what_waits_for_room_is_placed_when_a_worker_appears(database: Database) -> None:
    await make_action(database)
    async with executor(database):
        ids = await request(database, count=5)
        await until(lambda: all_are(database, ids, "scheduling"))
        await make_worker(database, capacity=100)
        await until(lambda: all_are(database, ids, "scheduled"))


async def test_work_of_a_worker_that_died_unstarted_goes_to_another(database: Database) -> None:
    await make_action(database)
    await make_worker(database, name="gone", capacity=100)
    async with executor(database):
        ids = await request(database, count=5)
        await until(lambda: all_are(database, ids, "scheduled"))
        other = await make_worker(database, name="other", capacity=100)
        async with database.transaction() as tx:
            # Nobody is judged for one interval after the database started, which may have been just now.
            await tx.execute("UPDATE worker SET status = 'lost', heartbeat_interval = 1 WHERE name = 'gone'")

        async def moved() -> bool:
            async with database.reading() as tx:
                return set(await tx.fetch_column("SELECT worker_id FROM assignment")) == {other.worker_id}

        await until(moved)


async def test_an_executor_registers_itself_and_leaves_in_good_order(database: Database) -> None:
    async def registered() -> bool:
        async with database.reading() as tx:
            return await tx.fetch_column("SELECT name FROM executor_replica") == ["executor-1"]

    async with executor(database):
        await until(registered)
    assert not await registered()


@pytest.mark.parametrize("pinned_to", [1, 999])
async def test_pinned_work_is_scheduled_on_its_worker_alive_or_not(database: Database, pinned_to: int) -> None:
    await make_action(database)
    await make_worker(database)
    async with executor(database):
        ids = await request(database, worker_id=pinned_to)
        await until(lambda: all_are(database, ids, "scheduled"))
    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT worker_id FROM assignment") == [pinned_to]


async def test_replicas_raise_an_alert_together_and_each_change_of_scaling_once(database: Database) -> None:
    await make_action(database)
    await make_worker(database, capacity=2, heartbeat_interval=1000)
    metrics = build_metrics(version="test", service="executor")
    async with database.transaction() as tx:
        await tx.execute("UPDATE action SET quarantined_at = now()")

    async def raised() -> bool:
        async with database.reading() as tx:
            return await tx.fetch_column("SELECT name FROM alert WHERE state = 'firing'") == ["action_quarantined"]

    async def wanted() -> bool:
        async with database.reading() as tx:
            return await tx.fetch_column("SELECT wanted FROM scaling_change") == [2]

    async with executor(database, metrics=metrics), executor(database, "executor-2", metrics=metrics):
        await until(raised)
        async with database.transaction() as tx:
            await tx.execute("UPDATE action SET quarantined_at = NULL")
        ids = await request(database, count=4)
        await until(lambda: all_are(database, ids[:2], "scheduled"))
        await until(wanted)
    raised_so_far = [count.value for count in metrics.counts() if count.name == "attune_alerts_total"]
    assert raised_so_far == [1.0]
