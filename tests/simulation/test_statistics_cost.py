"""What looking at lines costs does not depend on how many wait in them."""

from __future__ import annotations

import pytest

from attune.storage.database import Database
from attune.storage.statistics import gauges, line_history
from attune.storage.tx import Tx
from attune.storage.views import line_statistics, lines
from tests.simulation.test_admission_cost import FEW, MANY, fill
from tests.witness.arrange import make_action

PRIORITIES = 3


@pytest.fixture
async def long_line(database: Database) -> int:
    """A long line with few priorities."""
    action_id = await make_action(database)
    line_id = await fill(database, action_id, group="1", waiting=MANY)
    async with database.transaction() as tx:
        await tx.execute("UPDATE line_entry SET priority = seq % $1", PRIORITIES)
        await tx.execute(
            "UPDATE line_entry SET enqueued_at = now() - interval '1 hour' WHERE line_id = $1 AND seq < 3", line_id
        )
    async with database.reading() as tx:
        for table in ("line", "line_entry", "execution", "policy"):
            await tx.execute(f"ANALYZE {table}")
    return line_id


async def places_read(tx: Tx) -> tuple[int, int]:
    """So far on this connection: walks through the table, and places of its indexes."""
    row = await tx.fetch_row(
        """
        SELECT pg_stat_get_xact_numscans('line_entry'::regclass) AS walks,
               pg_stat_get_xact_tuples_returned('line_entry_order'::regclass)
               + pg_stat_get_xact_tuples_returned('line_entry_timeout'::regclass)
               + pg_stat_get_xact_tuples_returned('line_entry_pkey'::regclass) AS places
        """
    )
    assert row is not None
    return row["walks"], row["places"]


async def test_the_view_of_the_specification_reads_one_place_for_each_priority(
    database: Database, long_line: int
) -> None:
    async with database.transaction() as tx:
        before = await places_read(tx)
        row = await tx.fetch_row("SELECT *, now() - oldest_enqueued_at AS age FROM queue_stats")
        after = await places_read(tx)
    assert row is not None
    assert row["queue_length"] == MANY
    assert row["age"].total_seconds() >= 3600
    assert after[0] == before[0]
    assert PRIORITIES <= after[1] - before[1] <= 4 * PRIORITIES


@pytest.mark.parametrize("look", ["list", "totals", "gauges", "history"])
async def test_every_other_look_at_a_long_line_is_as_short(database: Database, long_line: int, look: str) -> None:
    async with database.transaction() as tx:
        scopes = await tx.fetch_column("SELECT scope FROM line WHERE id = $1", long_line)
        before = await places_read(tx)
        if look == "list":
            await lines.list_by_id(tx, [long_line])
        elif look == "totals":
            await line_statistics.read_totals(tx, scopes, default_length_max=MANY)
        elif look == "gauges":
            await gauges.list_scopes(tx)
        else:
            await line_history.record(tx)
            await line_history.record_waits(tx)
        after = await places_read(tx)
    assert after[0] == before[0]
    assert after[1] - before[1] <= FEW * PRIORITIES
