"""Many at once: batches that do not fit, and thousands of groups."""

from __future__ import annotations

import asyncio
from statistics import median
from time import perf_counter

import pytest

from attune.operations.acceptance import Request
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.lines.join_lines import QueueFull
from attune.operations.lines.remove_idle_lines import remove_idle_lines
from attune.operations.request_executions import request_executions
from attune.storage.database import Database
from tests.witness.arrange import always_half, make_action, make_worker, request
from tests.witness.lines import make_policy, nothing_is_broken
from tests.witness.prepare import prepare
from tests.witness.scale import scaled

ROOM = 400
BATCH = 1000
GROUPS = scaled(short=1500, full=10_000)
FEW_GROUPS = 100
REPEATS = 15
# Flat would be 1; a shared machine is noisy, and a walk over all lines would be far above.
RATIO_MAX = 4


async def count(database: Database, table: str) -> int:
    async with database.reading() as tx:
        return int(await tx.fetch_value(f"SELECT count(*) FROM {table}"))  # noqa: S608  a name written here


async def test_a_batch_that_does_not_fit_is_refused_whole(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1}, max_queue_length=ROOM)

    with pytest.raises(QueueFull):
        await request(database, count=BATCH)

    assert [await count(database, each) for each in ("execution", "line_entry", "admission_log", "outbox")] == [0] * 4
    assert len(await request(database, count=ROOM)) == ROOM


async def test_of_batches_that_race_for_room_as_many_are_taken_whole_as_fit(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1}, max_queue_length=ROOM)

    answers = await asyncio.gather(*(request(database, count=ROOM // 2 - 10) for _ in range(5)), return_exceptions=True)

    assert sum(isinstance(answer, list) for answer in answers) == 2
    assert sum(isinstance(answer, QueueFull) for answer in answers) == 3
    assert await count(database, "execution") == 2 * (ROOM // 2 - 10)
    await nothing_is_broken(database)


async def request_for_hosts(database: Database, hosts: range) -> None:
    """One execution for each host, in batches as a client would send them."""
    for begin in range(hosts.start, hosts.stop, BATCH):
        wanted = [
            Request(action_ref="demo.work", parameters={"host": host})
            for host in range(begin, min(begin + BATCH, hosts.stop))
        ]
        async with database.transaction() as tx:
            prepared = await prepare(tx, wanted)
            (answer,) = await request_executions(tx, [prepared], max_queue_length=10, no_worker_grace_seconds=60)
            assert not isinstance(answer, QueueFull)


async def time_of_a_step(database: Database, host: int) -> float:
    """How long it takes one of many lines to take somebody in, and to admit them."""
    began = perf_counter()
    await request(database, parameters={"host": host})
    async with database.transaction() as tx:
        line_id = await tx.fetch_value("SELECT line_id FROM execution ORDER BY id DESC LIMIT 1")
        await admit_waiting(tx, [line_id], actor="executor test", draw=always_half)
    return perf_counter() - began


async def test_thousands_of_groups_cost_no_more_than_a_few_and_leave_nothing_behind(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1, "parameters": ["host"]})
    await make_worker(database, capacity=100_000, heartbeat_interval=600)
    await request_for_hosts(database, range(FEW_GROUPS))
    few = [await time_of_a_step(database, host) for host in range(REPEATS)]
    await request_for_hosts(database, range(FEW_GROUPS, GROUPS))
    async with database.transaction() as tx:
        await tx.execute("ANALYZE line")
    many = [await time_of_a_step(database, host) for host in range(REPEATS, 2 * REPEATS)]

    assert median(many) <= RATIO_MAX * median(few)
    assert await count(database, "line") == GROUPS
    await end_everything(database)
    while await remove(database):
        pass
    assert await count(database, "line") == 0


async def end_everything(database: Database) -> None:
    """All of them were cancelled and released long ago, as many at a time as a client sends."""
    async with database.transaction() as tx:
        await tx.execute("UPDATE execution SET status = 'cancelled', ended_at = now() WHERE status = 'queued'")
        await tx.execute(
            "UPDATE execution SET status = 'cancelled', ended_at = now() WHERE status IN ('scheduling', 'scheduled')"
        )
        ids = await tx.fetch_column("SELECT id FROM execution ORDER BY id")
    for batch in (ids[first : first + BATCH] for first in range(0, len(ids), BATCH)):
        async with database.transaction() as tx:
            await tx.execute("SELECT release_entries($1)", batch)
    async with database.transaction() as tx:
        await tx.execute("UPDATE line SET last_updated = now() - interval '1 hour'")


async def remove(database: Database) -> int:
    async with database.transaction() as tx:
        return await remove_idle_lines(tx)
