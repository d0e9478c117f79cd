"""The SQL that the specification prints for operators, letter by letter, as `attune db psql` would run it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from attune.storage.database import Database
from tests.witness.arrange import make_action, make_worker, place, request, statuses
from tests.witness.arrange_lines import join, make_line
from tests.witness.lines import admit, end, make_policy, nothing_is_broken, release

ACTIVE_QUEUES = """
SELECT action_id, queue_length, active_count, max_concurrent,
oldest_enqueued_at, last_updated
FROM attune.queue_stats
WHERE queue_length > 0 OR active_count > 0
ORDER BY queue_length DESC;
"""
STUCK_QUEUES = """
SELECT a.ref, qs.queue_length, qs.active_count,
qs.oldest_enqueued_at,
NOW() - qs.last_updated AS stale_duration
FROM attune.queue_stats qs
JOIN attune.action a ON a.id = qs.action_id
WHERE (queue_length > 0 OR active_count > 0)
AND last_updated < NOW() - INTERVAL '10 minutes';
"""
QUEUE_THROUGHPUT = """
SELECT a.ref, qs.total_completed, qs.total_enqueued,
qs.total_completed::float / NULLIF(qs.total_enqueued, 0) * 100 AS completion_rate
FROM attune.queue_stats qs
JOIN attune.action a ON a.id = qs.action_id
WHERE total_enqueued > 0
ORDER BY total_enqueued DESC;
"""
# The specification has `<action_id>` where the reader puts a number.
ACTIVE_EXECUTIONS = """
SELECT id, status, created FROM attune.execution
WHERE action = $1 AND status IN ('running', 'requested')
ORDER BY created DESC LIMIT 10;
"""
ALL_QUEUES = """
SELECT SUM(queue_length) as total_queued,
COUNT(*) as num_actions,
MAX(queue_length) as max_queue
FROM attune.queue_stats;
"""
STALE_EXECUTIONS = """SELECT * FROM execution
WHERE status = 'scheduled'
AND updated < $1"""
FAIL_EXECUTION = """UPDATE execution
SET status = 'failed',
result = $2,
updated = NOW()
WHERE id = $1"""
FAIL_DEAD_LETTER = """UPDATE execution
SET status = 'failed',
result = $2,
updated = NOW()
WHERE id = $1 AND status = 'scheduled'"""
WORKER_STOPS = "UPDATE worker SET status = 'inactive', updated = NOW() WHERE id = $1"


@pytest.fixture
async def psql(database: Database) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session like that of `attune db psql`: the search path, and none of the services' other settings."""
    connection = await asyncpg.connect(database.url, server_settings={"search_path": "attune"})
    yield connection
    await connection.close()


async def test_active_queues_are_listed_the_longest_first(
    database: Database, psql: asyncpg.Connection[asyncpg.Record]
) -> None:
    busy, idle = [await make_action(database, f"demo.{name}") for name in ("busy", "idle")]
    short = await make_action(database, "demo.short")
    line = await make_line(database, "demo.busy", active=2)
    await join(database, line.line_id, "demo.busy", count=3, waited_seconds=60)
    await make_line(database, "demo.busy", group='{"host":"a"}', waiting=1)
    await make_line(database, "demo.short", limit=7, active=1)
    await make_line(database, "demo.idle")

    rows = await psql.fetch(ACTIVE_QUEUES)

    told = [(row["action_id"], row["queue_length"], row["active_count"], row["max_concurrent"]) for row in rows]
    assert told == [(busy, 4, 2, 2), (short, 0, 1, 7)]
    assert idle not in [row["action_id"] for row in rows]
    assert rows[0]["oldest_enqueued_at"] < datetime.now(UTC) - timedelta(seconds=60)
    assert rows[1]["oldest_enqueued_at"] is None
    total = await psql.fetchrow(ALL_QUEUES)
    assert total is not None
    assert tuple(total) == (4, 3, 4)


async def test_queues_that_do_not_progress_are_found(
    database: Database, psql: asyncpg.Connection[asyncpg.Record]
) -> None:
    for name in ("stuck", "moving", "old"):
        await make_action(database, f"demo.{name}")
        await make_line(database, f"demo.{name}", waiting=0 if name == "old" else 2)
    await psql.execute(
        """UPDATE line SET last_updated = now() - interval '20 minutes'
            WHERE scope <> (SELECT 'action:' || id FROM action WHERE ref = 'demo.moving')"""
    )
    (row,) = await psql.fetch(STUCK_QUEUES)
    assert (row["ref"], row["queue_length"], row["active_count"]) == ("demo.stuck", 2, 0)
    assert timedelta(minutes=20) <= row["stale_duration"] < timedelta(hours=1)


async def test_throughput_is_told_for_every_action_that_ever_queued(
    database: Database, psql: asyncpg.Connection[asyncpg.Record]
) -> None:
    gone = await make_action(database, "demo.gone")
    await make_action(database, "demo.work")
    await make_line(database, waiting=4)
    await psql.execute("UPDATE line SET total_completed = 1")
    await psql.execute("INSERT INTO line_remainder VALUES ('action:' || $1::bigint, 10, 5, 5, now())", gone)
    rows = await psql.fetch(QUEUE_THROUGHPUT)
    assert [tuple(row) for row in rows] == [("demo.gone", 5, 10, 50.0), ("demo.work", 1, 4, 25.0)]


async def test_executions_are_found_by_action_status_and_age(
    database: Database, psql: asyncpg.Connection[asyncpg.Record]
) -> None:
    action_id = await make_action(database)
    await make_worker(database, heartbeat_interval=1000)
    waiting, placed = await request(database, count=2)
    await place(database, [placed])
    assert [row["id"] for row in await psql.fetch(ACTIVE_EXECUTIONS, action_id)] == [waiting]
    soon = datetime.now(UTC) + timedelta(minutes=1)
    assert [row["id"] for row in await psql.fetch(STALE_EXECUTIONS, soon)] == [placed]
    assert await psql.fetch(STALE_EXECUTIONS, soon - timedelta(hours=1)) == []


async def test_a_worker_can_be_marked_as_stopped(database: Database, psql: asyncpg.Connection[asyncpg.Record]) -> None:
    worker = await make_worker(database)
    assert await psql.execute(WORKER_STOPS, worker.worker_id) == "UPDATE 1"
    assert await psql.fetchval("SELECT status FROM worker") == "inactive"


@pytest.mark.parametrize("statement", [FAIL_EXECUTION, FAIL_DEAD_LETTER])
async def test_an_execution_that_is_failed_by_hand_leaves_its_worker_and_its_line(
    database: Database, psql: asyncpg.Connection[asyncpg.Record], statement: str
) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    await make_worker(database, heartbeat_interval=1000)
    first, second = await request(database, count=2)
    await admit(database)
    await psql.execute("DELETE FROM outbox")

    assert await psql.execute(statement, first, '{"error": "gone"}') == "UPDATE 1"

    row = await psql.fetchrow(
        "SELECT status, result ->> 'error', ended_at <= now() FROM execution WHERE id = $1", first
    )
    assert row is not None
    assert tuple(row) == ("failed", "gone", True)
    told = await psql.fetch("SELECT type, items FROM outbox")
    assert [tuple(each) for each in told] == [("execution.completed", f"[[{first}, 1]]")]
    last = await psql.fetchrow("SELECT actor = session_user, reason FROM execution_history ORDER BY id DESC LIMIT 1")
    assert last is not None
    assert tuple(last) == (True, "ended in the database")
    await release(database, [first])
    assert await statuses(database, [first, second]) == ["failed", "scheduled"]
    await nothing_is_broken(database)


async def test_what_ended_is_not_failed_by_hand_and_nothing_is_born_half_ended(
    database: Database, psql: asyncpg.Connection[asyncpg.Record]
) -> None:
    await make_action(database)
    worker = await make_worker(database, heartbeat_interval=1000)
    ids = await request(database)
    await place(database, ids)
    await end(database, worker, ids)
    assert await psql.execute(FAIL_DEAD_LETTER, ids[0], "{}") == "UPDATE 0"
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="may not move from succeeded to failed"):
        await psql.execute(FAIL_EXECUTION, ids[0], "{}")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="may not be born as failed"):
        await psql.execute(
            "INSERT INTO execution (action, action_ref, runner, status) VALUES (1, 'a.b', 'x', 'failed')"
        )
