"""The history of lines: everything that happened is told once, and totals never go backwards."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from attune.operations.lines.remove_idle_lines import IDLE_SECONDS, remove_idle_lines
from attune.operations.upkeep.record_lines import record_lines
from attune.storage.database import Database
from attune.storage.statistics import line_history
from attune.storage.statistics.line_history import LineStep
from attune.storage.views import line_statistics
from tests.witness.arrange import make_action, make_worker, request
from tests.witness.arrange_lines import join, make_line
from tests.witness.lines import admit, end, make_policy, release

DAYS = 30


async def record(database: Database) -> None:
    async with database.transaction() as tx:
        await record_lines(tx, days=DAYS)


async def move_back(database: Database, minutes: int) -> None:
    """As if everything recorded so far had been recorded earlier."""
    async with database.transaction() as tx:
        await tx.execute("UPDATE queue_stats_history SET minute = minute - make_interval(mins => $1)", minutes)


async def history(database: Database, *, hours: int = 2, step_seconds: int = 60) -> list[LineStep]:
    async with database.reading() as tx:
        scopes = await tx.fetch_column("SELECT DISTINCT scope FROM queue_stats_history")
        since = datetime.now(UTC) - timedelta(hours=hours)
        return await line_history.list_steps(tx, scopes, since=since, step_seconds=step_seconds)


def happened(steps: list[LineStep]) -> tuple[int, int, int, int]:
    return (
        sum(step.enqueued for step in steps),
        sum(step.admitted for step in steps),
        sum(step.completed for step in steps),
        sum(step.removed for step in steps),
    )


async def totals(database: Database, scope: str) -> tuple[int, int, int]:
    async with database.reading() as tx:
        counted = await line_statistics.read_totals(tx, [scope], default_length_max=100)
    return counted.lines, counted.total_enqueued, counted.total_completed


async def test_everything_that_happened_in_a_line_is_told(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 2})
    worker = await make_worker(database, capacity=10, heartbeat_interval=1000)
    ids = await request(database, count=5)
    await record(database)
    await admit(database)
    await end(database, worker, ids[:1])
    await release(database, ids[:1])
    await record(database)

    steps = await history(database)

    assert happened(steps) == (5, 3, 1, 0)
    assert max(step.waiting_max for step in steps) == 5
    assert max(step.active_max for step in steps) == 2
    assert steps[-1].limit == 2
    assert steps[-1].wait_max is not None
    assert 0 <= (steps[-1].wait_p50 or 0) <= (steps[-1].wait_p99 or 0) <= steps[-1].wait_max


async def test_looking_often_and_on_many_replicas_counts_nothing_twice(database: Database) -> None:
    await make_action(database)
    await make_line(database, active=1, waiting=3)
    for _ in range(3):
        await asyncio.gather(*(record(database) for _ in range(4)))
    assert happened(await history(database)) == (4, 1, 0, 0)


async def test_each_minute_tells_what_happened_since_the_one_before(database: Database) -> None:
    await make_action(database)
    line = await make_line(database)
    await join(database, line.line_id, count=3, waited_seconds=90)
    await record(database)
    await move_back(database, 10)
    await join(database, line.line_id, count=2)
    await record(database)

    minutes = await history(database)
    together = await history(database, step_seconds=86_400)

    assert [step.enqueued for step in minutes] == [3, 2]
    assert minutes[1].oldest_seconds >= 90
    assert sum(step.enqueued for step in together) == 5
    assert max(step.waiting_max for step in together) == 5


async def test_a_line_that_stands_still_and_empty_writes_nothing(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database, heartbeat_interval=1000)
    ids = await request(database)
    await admit(database)
    await end(database, worker, ids)
    await release(database, ids)
    await record(database)
    await move_back(database, 10)
    await record(database)
    assert len(await history(database)) == 1


async def test_old_minutes_are_forgotten_but_the_last_one_of_a_scope_stays(database: Database) -> None:
    await make_action(database)
    line = await make_line(database, waiting=3)
    for _ in range(3):
        await record(database)
        await move_back(database, (DAYS + 1) * 24 * 60)
    async with database.transaction() as tx:
        await tx.execute("UPDATE line_entry SET state = 'active'")
        await tx.execute("UPDATE line SET waiting = 0, active = 0, total_completed = 3 WHERE id = $1", line.line_id)
    await record(database)
    await move_back(database, (DAYS + 1) * 24 * 60)
    await record(database)
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM queue_stats_history") == 1

    async with database.transaction() as tx:
        await tx.execute("UPDATE line SET total_enqueued = total_enqueued + 2, waiting = 2")
    await record(database)
    assert happened(await history(database))[0] == 2, "the next minute is told by its difference to it"


async def test_totals_keep_what_removed_groups_had_counted(database: Database) -> None:
    action_id = await make_action(database)
    scope = f"action:{action_id}"
    await make_policy(database, concurrency={"limit": 1, "parameters": ["host"]})
    worker = await make_worker(database, heartbeat_interval=1000)
    for host in ("a", "b"):
        ids = await request(database, parameters={"host": host})
        await admit(database)
        await end(database, worker, ids)
        await release(database, ids)
    await make_line(database, group='{"host":"busy"}', waiting=1)
    await record(database)
    before = await totals(database, scope)
    async with database.transaction() as tx:
        await tx.execute(
            "UPDATE line SET last_updated = now() - make_interval(secs => $1) WHERE waiting = 0", IDLE_SECONDS + 1
        )

    async with database.transaction() as tx:
        assert await remove_idle_lines(tx) == 2
    await record(database)

    assert before == (3, 3, 2)
    assert await totals(database, scope) == (1, 3, 2)
    assert happened(await history(database)) == (3, 2, 2, 0)
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT total_enqueued, total_completed, queue_length FROM queue_stats")
    assert row is not None
    assert tuple(row) == (3, 2, 1)


async def test_replicas_that_remove_lines_at_once_keep_all_they_had_counted(database: Database) -> None:
    await make_action(database)
    for number in range(40):
        line = await make_line(database, group=f'{{"n":{number}}}', waiting=1)
        async with database.transaction() as tx:
            await tx.execute("DELETE FROM line_entry WHERE line_id = $1", line.line_id)
    async with database.transaction() as tx:
        await tx.execute("UPDATE line SET waiting = 0, total_removed = 1, last_updated = now() - interval '1 day'")

    async def remove() -> int:
        async with database.transaction() as tx:
            return await remove_idle_lines(tx)

    assert sum(await asyncio.gather(*(remove() for _ in range(4)))) == 40
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT total_enqueued + total_removed FROM line_remainder") == 80
