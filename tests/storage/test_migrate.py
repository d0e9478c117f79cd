"""The schema: how it comes about, and what it refuses."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from attune.api.checks import platform_checks
from attune.domain.execution import BIRTHS, TRANSITIONS, Status, transition_pairs
from attune.storage.database import Database
from attune.storage.migrate import Migration, SchemaMismatch, compare, migrate, migrations, plan
from tests.transport.station import build_transport
from tests.witness.arrange import make_action, request


async def test_several_processes_that_migrate_at_once_apply_everything_once(empty_database_url: str) -> None:
    applied = await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))

    assert sorted(len(done) for done in applied) == [0, 0, 0, len(migrations())]


async def test_migrating_a_database_that_holds_data_changes_none_of_it(database: Database, database_url: str) -> None:
    await make_action(database)
    ids = await request(database, count=3)

    assert await migrate(database_url) == []

    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT id FROM execution ORDER BY id") == ids


async def test_later_migrations_leave_what_an_older_schema_holds(empty_database_url: str) -> None:
    first, *later = migrations()
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute("CREATE SCHEMA attune; SET search_path = attune")
        await connection.execute(first.statements)
        await connection.execute(
            "CREATE TABLE schema_version (version int PRIMARY KEY, name text, checksum text, applied_at timestamptz)"
        )
        await connection.execute(
            "INSERT INTO schema_version VALUES ($1, $2, $3, now())", first.version, first.name, first.checksum
        )
        await connection.execute(
            """
            INSERT INTO execution (action, action_ref, runner, status)
            SELECT 1, 'demo.work', 'native', 'requested' FROM generate_series(1, 100);
            INSERT INTO line (scope, group_hash, active, waiting) VALUES ('action:1', 'x', 1, 2);
            """
        )

        assert [done.version for done in await migrate(empty_database_url)] == [each.version for each in later]

        assert await connection.fetchval("SELECT count(*) FROM execution WHERE status = 'requested'") == 100
        assert await connection.fetchval("SELECT (active, waiting) = (1, 2) FROM line") is True
    finally:
        await connection.close()


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(database: Database, database_url: str) -> None:
    async with database.transaction() as tx:
        await tx.execute("INSERT INTO schema_version (version, name, checksum) VALUES (9999, 'future', 'x')")

    with pytest.raises(SchemaMismatch, match=r"schema version 9999.*newer Attune"):
        await migrate(database_url)


async def test_what_runs_while_a_newer_version_migrates_stays_ready(database: Database, database_url: str) -> None:
    async with database.transaction() as tx:
        await tx.execute("INSERT INTO schema_version (version, name, checksum) VALUES (9999, 'future', 'x')")
    transport = build_transport(database, "")

    schema = await platform_checks(database, transport)["schema"]()

    assert schema.ok
    assert "upgrade is under way" in schema.detail


async def test_a_schema_that_was_changed_behind_our_back_is_not_ready(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("UPDATE schema_version SET checksum = 'other' WHERE version = 1")

    with pytest.raises(SchemaMismatch, match="other contents"):
        async with database.reading() as tx:
            await compare(tx.connection)


def test_a_migration_that_was_edited_after_it_was_applied_is_refused() -> None:
    known = [Migration(version=1, name="foundation", statements="SELECT 1")]

    with pytest.raises(SchemaMismatch, match="0001_foundation was applied with other contents"):
        plan([(1, "another checksum")], known)


async def test_the_database_knows_exactly_the_moves_of_the_state_machine(database: Database) -> None:
    async with database.reading() as tx:
        moves = await tx.fetch_value("SELECT legal_moves()")
        births = await tx.fetch_value("SELECT legal_births()")

    assert set(moves) == {f"{current}>{target}" for current, target in transition_pairs()}
    assert set(births) == set(BIRTHS)


ILLEGAL = [(current, target) for current in Status for target in Status if target not in TRANSITIONS[current]]


async def test_every_move_outside_the_state_machine_is_refused_by_the_database(database: Database) -> None:
    await make_action(database)
    (execution_id,) = await request(database)
    connection = await database.dedicated(application="illegal moves")
    refused = []
    try:
        # Reaching every state by legal moves would test something else: the trigger compares old with new.
        await connection.execute("ALTER TABLE execution DISABLE TRIGGER execution_changes")
        for current, target in ILLEGAL:
            if current is target:
                continue
            await _set_status(connection, execution_id, current)
            await connection.execute("ALTER TABLE execution ENABLE TRIGGER execution_changes")
            with pytest.raises(asyncpg.IntegrityConstraintViolationError, match=f"from {current} to {target}"):
                await _set_status(connection, execution_id, target)
            await connection.execute("ALTER TABLE execution DISABLE TRIGGER execution_changes")
            refused.append((current, target))
    finally:
        await connection.close()
    assert len(refused) == len([pair for pair in ILLEGAL if pair[0] is not pair[1]])


async def _set_status(connection: asyncpg.Connection[asyncpg.Record], execution_id: int, status: Status) -> None:
    await connection.execute(
        """
        UPDATE execution SET status = $2,
               ended_at = CASE WHEN $2 IN ('succeeded', 'failed', 'timeout', 'cancelled') THEN now() END
         WHERE id = $1
        """,
        execution_id,
        status,
    )


async def test_an_execution_cannot_be_born_running(database: Database) -> None:
    connection = await database.dedicated(application="birth")
    try:
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="may not be born as running"):
            await connection.execute(
                "INSERT INTO execution (action, action_ref, runner, status) VALUES (1, 'a.b', 'native', 'running')"
            )
    finally:
        await connection.close()


async def test_an_end_without_a_terminal_status_is_refused(database: Database) -> None:
    await make_action(database)
    await request(database)
    connection = await database.dedicated(application="ended")
    try:
        with pytest.raises(asyncpg.CheckViolationError, match="execution_ended_only_in_terminal_states"):
            await connection.execute("UPDATE execution SET ended_at = now()")
    finally:
        await connection.close()


async def test_a_batch_after_single_moves_still_joins_old_and_new_by_hash(database: Database) -> None:
    """A plan cached from a one-row call once made a batch of a thousand eleven times slower."""
    await make_action(database)
    ids = await request(database, count=2000)
    connection = await database.dedicated(application="plans")
    try:
        for execution_id in ids[:10]:
            await _move(connection, [execution_id])
        single = await _time(connection, [[execution_id] for execution_id in ids[10:110]])
        batch = await _time(connection, [ids[1000:2000]])
    finally:
        await connection.close()
    # A thousand rows by nested loop over two unindexed transition tables cost a million comparisons, far more than a
    # thousand single moves; by hash they cost a small part of them.
    assert batch < single * 10


async def _move(connection: asyncpg.Connection[asyncpg.Record], ids: list[int]) -> None:
    await connection.execute("UPDATE execution SET status = 'scheduling' WHERE id = ANY($1)", ids)


async def _time(connection: asyncpg.Connection[asyncpg.Record], batches: list[list[int]]) -> float:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for batch in batches:
        await _move(connection, batch)
    return loop.time() - begin


async def test_only_known_topics_may_be_announced(database: Database) -> None:
    connection = await database.dedicated(application="topics")
    try:
        with pytest.raises(asyncpg.CheckViolationError, match="outbox_topic_is_known"):
            await connection.execute("INSERT INTO outbox (topic, type) VALUES ('gossip', 'gossip')")
    finally:
        await connection.close()
