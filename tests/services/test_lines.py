"""A running executor and its lines, through time: rates, a worker that is away, and replicas that take over."""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta

from attune.storage.database import Database
from tests.witness.arrange import TestWorker, make_action, make_worker, request, statuses
from tests.witness.executors import executor
from tests.witness.lines import end, make_policy, nothing_is_broken
from tests.witness.scale import scaled
from tests.witness.waiting import until

WAITING = scaled(short=200, full=1000)
RATE_MAX = 10
RATE_WINDOWS = 3
RATE_HALF_SECONDS = scaled(short=1, full=4)


async def admitted(database: Database) -> list[int]:
    async with database.reading() as tx:
        return await tx.fetch_column("SELECT execution_id FROM admission_log WHERE op = 'admit' ORDER BY line_id, n")


async def test_a_rate_is_kept_in_every_window_and_so_is_the_order(database: Database) -> None:
    await make_action(database)
    window_seconds = RATE_HALF_SECONDS / 2
    await make_policy(database, rate_limit={"max": RATE_MAX, "window_seconds": window_seconds, "method": "delay"})
    await make_worker(database, capacity=1000, heartbeat_interval=600)
    async with executor(database):
        ids = await request(database, count=RATE_MAX * RATE_WINDOWS)

        async def all_admitted() -> bool:
            return len(await admitted(database)) == len(ids)

        await until(all_admitted)
    async with database.reading() as tx:
        times = await tx.fetch_column("SELECT at FROM admission_log WHERE op = 'admit' ORDER BY n")
    assert await admitted(database) == ids
    window = timedelta(seconds=window_seconds)
    assert (
        max(number + 1 - bisect_left(times, at - window + timedelta(microseconds=1)) for number, at in enumerate(times))
        <= RATE_MAX
    )


async def test_while_the_only_worker_is_away_nobody_is_burnt_and_afterwards_all_run_in_order(
    database: Database,
) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 50})
    await make_worker(database, capacity=1000, heartbeat_interval=0.2)

    async def twice_stale() -> bool:
        async with database.reading() as tx:
            return bool(
                await tx.fetch_value(
                    "SELECT max(last_heartbeat + make_interval(secs => 2 * 3 * heartbeat_interval)) < now() FROM worker"
                )
            )

    async with executor(database):
        await until(twice_stale)
        ids = await request(database, count=WAITING)
        await until(twice_stale)
        assert set(await statuses(database, ids)) == {"queued"}
        worker = await make_worker(database, capacity=1000, heartbeat_interval=60)
        await serve_all(database, worker, ids)
    assert await admitted(database) == ids
    assert set(await statuses(database, ids)) == {"succeeded"}
    await nothing_is_broken(database)


async def serve_all(database: Database, worker: TestWorker, ids: list[int]) -> None:
    """What a worker does until all of them have ended."""
    while True:
        async with database.reading() as tx:
            placed = await tx.fetch_column("SELECT execution_id FROM assignment ORDER BY execution_id")
            left = await tx.fetch_value("SELECT count(*) FROM execution WHERE ended_at IS NULL AND id = ANY($1)", ids)
        if not left:
            return

        async def somebody_is_placed() -> bool:
            async with database.reading() as tx:
                return bool(await tx.fetch_value("SELECT EXISTS (SELECT 1 FROM assignment)"))

        if placed:
            await end(database, worker, placed)
        else:
            await until(somebody_is_placed)


async def test_an_end_that_another_replica_hears_of_advances_the_line(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database, heartbeat_interval=60)
    first, second = await request(database, count=2)

    async def is_scheduled(execution_id: int) -> bool:
        return await statuses(database, [execution_id]) == ["scheduled"]

    async with executor(database, "executor-a"):
        await until(lambda: is_scheduled(first))
    await end(database, worker, [first])
    async with executor(database, "executor-b"):
        await until(lambda: is_scheduled(second))

    async with database.reading() as tx:
        actors = await tx.fetch_column(
            "SELECT actor FROM execution_history WHERE to_status = 'scheduled' ORDER BY execution_id"
        )
    assert actors == ["executor-a", "executor-b"]
