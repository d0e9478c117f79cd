"""What a step costs does not depend on how many wait."""

from __future__ import annotations

from statistics import median
from time import perf_counter

import pytest

from attune.storage.database import Database
from attune.storage.tx import Tx
from tests.witness.arrange import make_action, make_worker

FEW = 10
MANY = 20_000
REPEATS = 31
# Flat would be 1; a shared machine is noisy, and a walk through the line would be far above.
RATIO_MAX = 3


class Undo(Exception):
    """Ends a transaction without a trace."""


async def fill(database: Database, action_id: int, *, group: str, waiting: int) -> int:
    """A line in which many wait; returns its id."""
    async with database.transaction() as tx:
        line_id: int = await tx.fetch_value(
            """
            INSERT INTO line (scope, group_key, group_hash, max_concurrent, waiting, next_seq, next_n, total_enqueued)
            VALUES ('action:' || $1::bigint, $2, sha256($2::text::bytea), 1, $3::int, $3::int + 1, 1, $3::int)
            RETURNING id
            """,
            action_id,
            group,
            waiting,
        )
        # Nobody moves here, so the history of each would only take time.
        await tx.execute("SET LOCAL session_replication_role = replica")
        await tx.execute(
            """
            WITH waiting AS (
                INSERT INTO execution (action, action_ref, runner, status, line_id, line_seq)
                SELECT $1, 'demo.work', 'native', 'queued', $2, n FROM generate_series(1, $3::int) n
                RETURNING id, line_seq)
            INSERT INTO line_entry (execution_id, line_id, action_id, seq, priority, state)
            SELECT id, $2, $1, line_seq, 0, 'waiting' FROM waiting
            """,
            action_id,
            line_id,
            waiting,
        )
        await tx.execute(
            "INSERT INTO policy (ref, scope, max_concurrent) VALUES ('demo.' || $1::text, 'action:x', 1)", group
        )
        await tx.execute(
            "UPDATE line SET policy_id = (SELECT id FROM policy WHERE ref = 'demo.' || $2::text) WHERE id = $1",
            line_id,
            group,
        )
    return line_id


@pytest.fixture
async def few_and_many(database: Database) -> tuple[int, int]:
    """A short and a long line in tables of the same size, as the planner knows them."""
    action_id = await make_action(database)
    await make_worker(database, capacity=1000, heartbeat_interval=100_000.0)
    lines = (
        await fill(database, action_id, group="few", waiting=FEW),
        await fill(database, action_id, group="many", waiting=MANY),
    )
    async with database.reading() as tx:
        for table in ("line", "line_entry", "execution", "policy", "worker", "action"):
            await tx.execute(f"ANALYZE {table}")
    return lines


async def admit_one(tx: Tx, line_id: int) -> None:
    rows = await tx.fetch("SELECT execution_id FROM admit_lines(ARRAY[$1::bigint], '{}', 500)", line_id)
    assert len(rows) == 1


async def time_one(database: Database, line_id: int) -> float:
    seconds = 0.0
    try:
        async with database.transaction() as tx:
            began = perf_counter()
            await admit_one(tx, line_id)
            seconds = perf_counter() - began
            raise Undo
    except Undo:
        return seconds


async def test_a_step_takes_as_long_with_many_waiting_as_with_few(
    database: Database, few_and_many: tuple[int, int]
) -> None:
    few, many = few_and_many
    timed = [(await time_one(database, few), await time_one(database, many)) for _ in range(REPEATS)]

    ratio = median(each[1] for each in timed) / median(each[0] for each in timed)

    assert ratio <= RATIO_MAX


async def test_a_step_reads_the_heads_of_a_long_line_and_no_table(
    database: Database, few_and_many: tuple[int, int]
) -> None:
    async with database.transaction() as tx:
        await admit_one(tx, few_and_many[1])
        read = await tx.fetch_row(
            """
            SELECT pg_stat_get_xact_numscans('line_entry'::regclass) AS walks_of_entries,
                   pg_stat_get_xact_numscans('execution'::regclass) AS walks_of_executions,
                   pg_stat_get_xact_numscans('line_entry_order'::regclass) AS looks_at_the_order,
                   pg_stat_get_xact_tuples_returned('line_entry_order'::regclass) AS places_read
            """
        )
    assert read is not None
    assert (read["walks_of_entries"], read["walks_of_executions"]) == (0, 0)
    assert read["looks_at_the_order"] >= 1
    assert read["places_read"] <= FEW
