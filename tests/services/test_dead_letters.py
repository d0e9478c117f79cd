"""Dispatches that nobody takes, with a running executor, on each transport."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from attune.runtime.metrics import Metrics, build_metrics
from attune.storage.database import Database
from attune.transport.protocol import Transport
from attune.transport.topology import worker_queues
from tests.transport.station import build_transport
from tests.witness.arrange import make_action, make_worker, request, statuses
from tests.witness.executors import executor
from tests.witness.waiting import until

TTL_SECONDS = 0.5
NOBODY = 999


@pytest.fixture
def metrics() -> Metrics:
    return build_metrics(version="test", service="executor")


@pytest.fixture(params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def broker_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("rabbitmq_url")) if request.param == "rabbitmq" else ""


@pytest.fixture
async def transport(broker_url: str, database: Database, metrics: Metrics) -> AsyncIterator[Transport]:
    """A transport with a short time to live, and an executor on it."""
    transport = build_transport(database, broker_url, dispatch_ttl_seconds=TTL_SECONDS)
    async with executor(database, transport=transport, metrics=metrics):
        yield transport


async def failed(database: Database, ids: list[int]) -> bool:
    return set(await statuses(database, ids)) == {"failed"}


@pytest.mark.usefixtures("transport")
async def test_work_for_a_worker_that_does_not_exist_fails_and_the_queue_is_empty(
    database: Database, metrics: Metrics
) -> None:
    await make_action(database)
    ids = await request(database, worker_id=NOBODY, count=3)

    await until(lambda: failed(database, ids))

    async with database.reading() as tx:
        results = await tx.fetch_column("SELECT result ->> 'error' FROM execution")
        letters = await tx.fetch("SELECT outcome, deaths FROM dead_letter")
    assert results == ["Worker queue TTL expired"] * 3
    assert [row["outcome"] for row in letters] == ["failed_execution"] * 3
    assert all(f"worker.{NOBODY}" in row["deaths"][0] for row in letters)

    def told_lines() -> list[str]:
        return metrics.render(metrics.counts()).decode().splitlines()

    async def told() -> bool:
        return "attune_executions_failed_by_dead_letter_total 3.0" in told_lines()

    await until(told)
    assert "attune_dead_letter_latency_seconds_count 3.0" in told_lines()
    await until(lambda: nothing_waits(database))


async def nothing_waits(database: Database) -> bool:
    async with database.reading() as tx:
        return not await tx.fetch_value("SELECT count(*) FROM outbox WHERE topic = 'dead'")


async def test_what_a_silent_worker_does_not_take_goes_to_another(database: Database, transport: Transport) -> None:
    await make_action(database)
    silent = await make_worker(database, name="silent", capacity=100, heartbeat_interval=60)
    await transport.declare(worker_queues(silent.worker_id, ttl_ms=int(TTL_SECONDS * 1000)))
    ids = await request(database, count=5)

    async def all_scheduled() -> bool:
        return set(await statuses(database, ids)) == {"scheduled"}

    await until(all_scheduled)
    other = await make_worker(database, name="other", capacity=100, heartbeat_interval=60)
    await transport.declare(worker_queues(other.worker_id, ttl_ms=60_000))

    async def moved() -> bool:
        async with database.reading() as tx:
            return set(await tx.fetch_column("SELECT worker_id FROM assignment")) == {other.worker_id}

    await until(moved)
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT DISTINCT outcome, worker_id, worker_instance FROM dead_letter")
    assert [tuple(row) for row in rows] == [("placed_elsewhere", silent.worker_id, silent.instance)]


@pytest.mark.usefixtures("transport")
async def test_a_dead_letter_that_meets_a_database_error_is_tried_again(database: Database) -> None:
    await make_action(database)
    ids = await request(database, worker_id=NOBODY)

    async def is_scheduled() -> bool:
        return await statuses(database, ids) == ["scheduled"]

    await until(is_scheduled)
    async with database.transaction() as tx:
        # Whoever wants this row waits for it until its lock times out, and fails.
        await tx.execute("SELECT 1 FROM execution WHERE id = $1 FOR UPDATE", ids[0])
        await until(lambda: handler_waits(database))
        await until(lambda: handler_gave_up(database))
    await until(lambda: failed(database, ids))
    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT outcome FROM dead_letter") == ["failed_execution"]


async def handler_waits(database: Database) -> bool:
    async with database.reading() as tx:
        return bool(
            await tx.fetch_value(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FOR NO KEY UPDATE%'"
            )
        )


async def handler_gave_up(database: Database) -> bool:
    return not await handler_waits(database)
