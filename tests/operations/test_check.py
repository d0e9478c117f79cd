"""Whether a check finds what is broken: each invariant by a violation of its own, and across checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from attune.operations.upkeep.check_invariants import CheckReport, check_invariants
from attune.operations.upkeep.keep_house import Keeping, keep_house
from attune.storage.database import Database
from attune.storage.upkeep.invariants import INVARIANTS
from tests.witness.arrange import make_action, make_worker, request
from tests.witness.lines import admit, end, make_policy, release


def move(execution_id: int, before: str | None, after: str, *, attempt: int, at: str = "clock_timestamp()") -> str:
    """A statement that records a move which nobody made."""
    start = f"'{before}'" if before else "NULL"
    return (
        "INSERT INTO execution_history (execution_id, from_status, to_status, attempt, actor, reason, at) "  # noqa: S608 — the test's own words
        f"VALUES ({execution_id}, {start}, '{after}', {attempt}, '', '', {at})"
    )


# A sound installation to break: line 1 with limit 2, in which 1 and 2 have ended, 3 and 4 are scheduled, 5 to 8 wait.
PLANTED = {
    "terminal_never_left": move(1, "succeeded", "running", attempt=1),
    "moves_are_legal": move(3, None, "running", attempt=1),
    "moves_follow_each_other": move(3, "running", "canceling", attempt=1),
    "one_end_per_execution": move(1, "running", "failed", attempt=1),
    "one_start_per_attempt": move(1, "scheduled", "running", attempt=1),
    "one_placement_per_attempt": move(3, "scheduled", "scheduled", attempt=1),
    "attempts_count_placements": move(3, "scheduled", "scheduled", attempt=5),
    "start_was_placed": move(5, "queued", "running", attempt=0),
    "tries_count_starts": ";".join(
        ["UPDATE execution SET tries = 1 WHERE id = 3", move(3, "scheduled", "cancelled", attempt=1)]
    ),
    "attempts_within_tries": ";".join(
        ["UPDATE execution SET tries = 11 WHERE id = 3", move(3, "scheduled", "running", attempt=1)]
    ),
    "history_agrees": "UPDATE execution SET status = 'running' WHERE id = 3",
    "end_agrees": move(3, "scheduled", "failed", attempt=1),
    "assigned_has_assignment": "DELETE FROM assignment WHERE execution_id = 3",
    "assignment_has_execution": "UPDATE assignment SET execution_id = 5 WHERE execution_id = 3",
    "started_has_lease": "UPDATE assignment SET started_at = now(), lease_until = now() WHERE execution_id = 3",
    "scheduling_is_unplaced": "INSERT INTO unplaced (execution_id, pool, priority, action_id) VALUES (5, 1, 0, 1)",
    "unplaced_or_assigned": "INSERT INTO unplaced (execution_id, pool, priority, action_id) VALUES (3, 1, 0, 1)",
    "requested_moves": "INSERT INTO execution (action, action_ref, runner, status, created) "
    "VALUES (1, 'demo.work', 'native', 'requested', now() - interval '3 minutes')",
    "outbox_moves": "INSERT INTO outbox (topic, type, not_before) "
    "VALUES ('line.changed', 'line.changed', now() - interval '2 minutes')",
    "messages_tell_what_happened": "INSERT INTO outbox (topic, type, items) "
    "VALUES ('execution.completed', 'execution.completed', '[[1, 2]]')",
    "default_partitions_empty": "INSERT INTO audit_log (at, actor, operation, resource) "
    "VALUES (now() + interval '1 year', '', '', '')",
    "line_counts_agree": "UPDATE line_entry SET line_id = 99 WHERE execution_id = 8",
    "line_balances": "UPDATE line SET total_enqueued = total_enqueued + 1",
    "line_quota": """UPDATE policy SET quota = '{"per_day": 3}', updated = now() - interval '2 days';
        UPDATE line SET day = current_date, day_count = 4""",
    "queued_has_entry": "UPDATE line_entry SET seq = 99 WHERE execution_id = 8",
    "admitted_holds_slot": "DELETE FROM line_entry WHERE execution_id = 3",
    "slot_owner_alive": "UPDATE line_entry SET state = 'active', activated_at = now() - interval '1 minute' "
    "WHERE execution_id = 5",
    "ended_leaves_line": "UPDATE line_entry SET execution_id = 99 WHERE execution_id = 8",
    "no_idle_slot": "UPDATE line SET max_concurrent = 9, last_updated = now() - interval '1 minute'",
    "line_log_numbers": "UPDATE line SET next_n = next_n + 2; INSERT INTO admission_log (line_id, n, op) "
    "SELECT id, next_n - 1, 'limit' FROM line",
    "line_log_balances": "UPDATE line SET next_n = next_n + 1; "
    "INSERT INTO admission_log (line_id, n, op, execution_id, seq, priority) "
    "SELECT id, next_n - 1, 'remove', 8, 8, 0 FROM line",
    "line_log_active": "UPDATE line SET next_n = next_n + 1; INSERT INTO admission_log (line_id, n, op, active) "
    "SELECT id, next_n - 1, 'limit', 1 FROM line",
    "line_limit": "UPDATE line SET next_n = next_n + 1; INSERT INTO admission_log (line_id, n, op, execution_id, seq, "
    "priority, limit_in_force, active) SELECT id, next_n - 1, 'admit', 5, 5, 0, 2, 3 FROM line",
    "line_rate": """UPDATE policy SET rate_limit = '{"max": 2, "window_seconds": 60, "method": "delay"}',
        updated = now() - interval '1 day';
        UPDATE line SET next_n = next_n + 3; INSERT INTO admission_log (line_id, n, op, execution_id, seq, priority)
        SELECT id, next_n - 4 + k, 'admit', 4 + k, 4 + k, 0 FROM line, generate_series(1, 3) k""",
    "line_pause": "UPDATE line SET next_n = next_n + 2; INSERT INTO admission_log (line_id, n, op, execution_id, seq, "
    "priority) SELECT id, next_n - 2, 'pause', NULL, NULL, NULL FROM line "
    "UNION ALL SELECT id, next_n - 1, 'admit', 5, 5, 0 FROM line",
    "line_places": "UPDATE line SET next_n = next_n + 1; INSERT INTO admission_log (line_id, n, op, execution_id, seq, "
    "priority) SELECT id, next_n - 1, 'enq', 9, 4, 0 FROM line",
    "line_order": "UPDATE line SET next_n = next_n + 1; INSERT INTO admission_log (line_id, n, op, execution_id, seq, "
    "priority) SELECT id, next_n - 1, 'admit', 6, 6, 0 FROM line; DELETE FROM line_entry WHERE execution_id = 6",
    "line_priority": "UPDATE line_entry SET priority = 5 WHERE execution_id = 8; UPDATE line SET next_n = next_n + 1; "
    "INSERT INTO admission_log (line_id, n, op, execution_id, seq, priority) "
    "SELECT id, next_n - 1, 'admit', 5, 5, 0 FROM line",
    "alert_episodes_apart": """INSERT INTO alert (name, subject, severity, state, message, facts, since, seen_at,
        fired_at, resolved_at) SELECT 'queue_long', 'line:1', 'warning', 'resolved', '', '{}',
        now() - interval '1 hour', now(), now() - k * interval '10 minutes', now() FROM generate_series(1, 2) k""",
}


async def check(database: Database, *, everything: bool = False) -> CheckReport:
    async with database.snapshot(application="check") as tx:
        return await check_invariants(tx, everything=everything)


async def broken(database: Database, *, everything: bool = False) -> set[str]:
    return {item.name for item in (await check(database, everything=everything)).checks if item.violations}


async def plant(database: Database, statements: str) -> None:
    """Change the data behind the platform's back."""
    connection = await database.dedicated(application="vandal")
    try:
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(statements)
    finally:
        await connection.close()


@pytest.fixture
async def sound(database: Database) -> Database:
    await make_action(database)
    worker = await make_worker(database, capacity=8)
    await make_policy(database, concurrency={"limit": 2})
    ids = await request(database, count=8)
    await admit(database)
    await end(database, worker, ids[:2])
    await release(database, ids[:2])
    assert ids == list(range(1, 9))
    return database


def test_every_invariant_has_its_violation() -> None:
    assert list(PLANTED) == [invariant.name for invariant in INVARIANTS]


async def test_a_sound_installation_is_found_sound(sound: Database) -> None:
    assert await broken(sound) == set()
    assert await broken(sound) == set()
    assert await broken(sound, everything=True) == set()


@pytest.mark.parametrize("name", PLANTED)
async def test_a_violation_is_found_and_named(sound: Database, name: str) -> None:
    await plant(sound, PLANTED[name])

    assert name in await broken(sound)


@pytest.mark.parametrize("name", PLANTED)
async def test_a_violation_written_after_the_checkpoint_is_found_until_it_is_mended(sound: Database, name: str) -> None:
    assert await broken(sound) == set()
    await plant(sound, PLANTED[name])

    assert name in await broken(sound)
    assert name in await broken(sound)
    assert name in await broken(sound, everything=True)


async def test_what_was_verified_is_read_again_only_if_everything_is_asked_for(sound: Database) -> None:
    assert await broken(sound) == set()
    await plant(sound, "UPDATE admission_log SET active = 9, limit_in_force = 2 WHERE op = 'admit' AND seq = 1")

    assert await broken(sound) == set()
    assert await broken(sound, everything=True) == {"line_limit", "line_log_active"}


async def test_a_move_of_a_transaction_that_was_open_during_a_check_is_verified_by_the_next(sound: Database) -> None:
    slow = await sound.dedicated(application="slow")
    try:
        await slow.execute("SET idle_in_transaction_session_timeout = 0")
        await slow.execute("SET session_replication_role = replica")
        async with slow.transaction():
            # Long enough ago that reading a little more than what is new would not find it.
            await slow.execute(move(1, "succeeded", "running", attempt=1, at="now() - interval '2 hours'"))
            assert await broken(sound) == set()
            assert await broken(sound) == set()
    finally:
        await slow.close()

    assert "terminal_never_left" in await broken(sound)


async def test_a_reader_gets_the_same_verdict_and_moves_nothing(sound: Database) -> None:
    async with sound.snapshot(application="reader") as tx:
        await tx.execute("SET TRANSACTION READ ONLY")
        report = await check_invariants(tx)
    assert report.ok
    assert await checkpoint(sound) == []


async def checkpoint(database: Database) -> Sequence[int]:
    async with database.reading() as tx:
        return await tx.fetch_column("SELECT n FROM line_checkpoint WHERE kind = 'verified' ORDER BY line_id")


async def test_two_checks_at_once_do_not_disturb_each_other(sound: Database) -> None:
    async with sound.snapshot(application="first") as first, sound.snapshot(application="second") as second:
        await second.execute("SELECT 1")
        assert (await check_invariants(first)).ok
        await first.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        assert (await check_invariants(second)).ok
    assert await broken(sound) == set()


async def test_the_last_rows_of_a_removed_line_are_verified(sound: Database) -> None:
    assert await broken(sound) == set()
    await plant(
        sound,
        """
        UPDATE line SET next_n = next_n + 1;
        INSERT INTO admission_log (line_id, n, op, execution_id, seq, priority, limit_in_force, active)
        SELECT id, next_n - 1, 'admit', 5, 5, 0, 2, 3 FROM line
        """,
    )
    async with sound.transaction() as tx:
        await tx.execute("DELETE FROM line")

    assert {"line_limit", "line_log_balances"} <= await broken(sound)


async def test_balances_stay_right_when_old_days_are_dropped(sound: Database) -> None:
    await make_yesterday(sound, days=9)
    async with sound.transaction() as tx:
        await keep_house(tx, Keeping(dead_letter_seconds=86_400, idempotency_hours=24, history_days=8))
    async with sound.reading() as tx:
        assert await tx.fetch_value("SELECT min(n) FROM admission_log") == 8

    assert await broken(sound) == set()
    assert await broken(sound, everything=True) == set()
    await plant(sound, PLANTED["line_log_balances"])
    assert "line_log_balances" in await broken(sound)
    assert "line_log_balances" in await broken(sound, everything=True)


async def make_yesterday(database: Database, *, days: int) -> None:
    """Move the first rows of the log, and the history of the first execution, to a day long past."""
    async with database.transaction() as tx:
        day, next_day = await tx.fetch_column("SELECT current_date - $1::int + k FROM generate_series(0, 1) k", days)
        for parent in ("admission_log", "execution_history"):
            for each in (day, next_day):
                await tx.execute(
                    f"CREATE TABLE {parent}_{each:%Y%m%d} PARTITION OF {parent} "
                    f"FOR VALUES FROM ('{each} 00:00Z') TO ('{each + timedelta(days=1)} 00:00Z')"
                )
        await tx.execute("UPDATE admission_log SET at = $1::date + time '23:59' WHERE n <= 9", day)
        # Around midnight times and numbers may cross.
        await tx.execute("UPDATE admission_log SET at = $1::date + time '00:00' WHERE n = 8", next_day)
        await tx.execute(
            "UPDATE execution_history SET at = $1::date + time '23:59' WHERE execution_id = 1 AND to_status = 'queued'",
            day,
        )


async def test_a_line_that_was_removed_and_dropped_leaves_no_checkpoint(sound: Database) -> None:
    async with sound.transaction() as tx:
        await tx.execute("DELETE FROM line_entry")
        await tx.execute("DELETE FROM line")
    async with sound.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM line_checkpoint") == 2
    async with sound.transaction() as tx:
        await tx.execute("SELECT drop_history(-1)")
    async with sound.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM admission_log") == 0
        assert await tx.fetch_value("SELECT count(*) FROM line_checkpoint") == 0
