"""A running executor: what it is told leads to what it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from attune.executor.service import Executor
from attune.executor.sweeps import SweepSettings
from attune.runtime.metrics import build_metrics
from attune.runtime.supervise import Tasks
from attune.storage.database import Database
from attune.transport.limits import Limits
from attune.transport.postgres import PostgresTransport
from attune.transport.topology import EXECUTOR_QUEUES, dead_letter_queue
from tests.witness.arrange import make_action, make_worker, request, statuses
from tests.witness.waiting import until


@asynccontextmanager
async def executor(database: Database, name: str = "executor-1") -> AsyncIterator[None]:
    transport = PostgresTransport(database)
    database.after_commit = transport.after_commit
    service = Executor(
        name=name,
        instance=uuid4(),
        database=database,
        transport=transport,
        queues=(*EXECUTOR_QUEUES, dead_letter_queue(ttl_ms=86_400_000)),
        limits=Limits(),
        max_queue_length=10_000,
        sweep_settings=SweepSettings(
            heartbeat_interval=0.4,
            scheduled_timeout=300,
            timeout_check_interval=60,
            placements_max=5,
            dead_letter_hours=24,
            idempotency_hours=24,
            queue_timeout_seconds=3600,
        ),
        metrics=build_metrics(version="test", service="executor"),
    )
    async with Tasks() as tasks:
        running = asyncio.ensure_future(service.run(tasks))
        try:
            yield
        finally:
            tasks.stop.set()
            await running


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
            await tx.execute("UPDATE worker SET status = 'lost' WHERE name = 'gone'")

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
