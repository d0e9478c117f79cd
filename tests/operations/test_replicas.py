"""The same thing done by several replicas at once is done once."""

from __future__ import annotations

import asyncio

from attune.domain.definitions import Runner
from attune.operations.expire_executions import expire_scheduled
from attune.storage import placing
from attune.storage.database import Database
from tests.witness.arrange import make_action, make_worker, place, request, start, statuses
from tests.witness.lines import admit, end, make_policy, nothing_is_broken, release
from tests.witness.scale import scaled
from tests.witness.waiting import until

REPLICAS = 4
ROUNDS = scaled(short=20, full=500)


async def dispatched(database: Database) -> list[list[int]]:
    async with database.reading() as tx:
        rows = await tx.fetch_column("SELECT items FROM outbox WHERE type = 'execution.dispatched'")
    return sorted(item for items in rows for item in items)


async def test_schedulers_that_are_handed_the_same_request_dispatch_it_once(database: Database) -> None:
    await make_action(database)
    await make_worker(database, capacity=100)
    ids = await request(database, count=10)

    await asyncio.gather(*(place(database, ids) for _ in range(REPLICAS)))

    assert await dispatched(database) == [[execution_id, 1] for execution_id in ids]
    assert await statuses(database, ids) == ["scheduled"] * 10
    await nothing_is_broken(database)


async def test_schedulers_that_look_at_the_same_line_dispatch_its_heads_once(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 4})
    await make_worker(database, capacity=100)
    ids = await request(database, count=10)

    await asyncio.gather(*(admit(database) for _ in range(REPLICAS)))

    assert await dispatched(database) == [[execution_id, 1] for execution_id in ids[:4]]
    await nothing_is_broken(database)


async def expire(database: Database) -> int:
    async with database.transaction() as tx:
        return await expire_scheduled(tx, timeout_seconds=0, placements_max=1)


async def test_a_timeout_moves_exactly_one_row_or_none(database: Database) -> None:
    """Sweeps of several replicas race each other and the worker that starts it after all."""
    await make_action(database)
    worker = await make_worker(database, capacity=1000, heartbeat_interval=60)
    outcomes = set()
    for _ in range(ROUNDS):
        ids = await request(database)
        await place(database, ids)
        *expired, started = await asyncio.gather(
            *(expire(database) for _ in range(REPLICAS)), start(database, worker, [(ids[0], 1)])
        )
        moved = sum(each for each in expired if isinstance(each, int))
        assert isinstance(started, list)
        assert moved + len(started) == 1
        assert await statuses(database, ids) == ["running" if started else "failed"]
        outcomes.add(moved)
    async with database.reading() as tx:
        ends = await tx.fetch_value("SELECT count(*) FROM execution_history WHERE to_status = 'failed'")
        failed = await tx.fetch_value("SELECT count(*) FROM execution WHERE status = 'failed'")
    assert ends == failed
    await nothing_is_broken(database)


async def test_pools_are_locked_in_one_order(database: Database) -> None:
    """Where somebody is admitted to the later of two pools and somebody waits for room in the earlier one."""
    by_pool = await make_two_pools(database)
    (early, early_ref), (_, late_ref) = sorted(by_pool.items())
    await make_policy(database, scope={"action": late_ref}, concurrency={"limit": 1})
    waiting = await request(database, early_ref)
    await place(database, waiting)
    assert await statuses(database, waiting) == ["scheduling"]
    worker = await make_worker(database)
    first, second = await request(database, late_ref, count=2)
    await admit(database)
    await end(database, worker, [first])

    async with database.transaction() as tx:
        await placing.open_pool(tx, early)
        releasing = asyncio.create_task(release(database, [first]))
        await until(lambda: somebody_waits_for_a_pool(database))
        assert await count_locked_pools(database) == 1
    await releasing
    assert await statuses(database, [*waiting, second]) == ["scheduled", "scheduled"]


async def make_two_pools(database: Database) -> dict[int, str]:
    """Two actions that need different workers, by the pools of these."""
    await make_action(database)
    await make_action(database, "demo.other", runner=Runner.SHELL, entry_point=None, command="true")
    async with database.reading() as tx:
        return {row["pool"]: row["ref"] for row in await tx.fetch("SELECT pool, ref FROM action")}


async def somebody_waits_for_a_pool(database: Database) -> bool:
    async with database.reading() as tx:
        return bool(
            await tx.fetch_value("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)")
        )


async def count_locked_pools(database: Database) -> int:
    async with database.reading() as tx:
        return int(
            await tx.fetch_value(
                """
                SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                 WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database()
                """
            )
        )
