"""What a check costs does not depend on how much was recorded before the last one."""

from __future__ import annotations

import pytest

from attune.operations.upkeep.check_invariants import check_invariants
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.storage.upkeep import checkpoints
from attune.storage.upkeep.claims.invariant import Reads
from attune.storage.upkeep.invariants import INVARIANTS, find_violations
from tests.witness.past import count_read, make_past

ENDED = 5000
WAITING = 500
# What a few lines and their pages may take; the logs hold many times as much.
READ_MAX = 500


@pytest.fixture
async def verified(database: Database) -> Database:
    async with database.snapshot(application="past") as tx:
        await make_past(tx, ended=ENDED, waiting=WAITING)
    async with database.reading() as tx:
        await tx.execute("ANALYZE")
    async with database.snapshot(application="check") as tx:
        report = await check_invariants(tx)
    assert report.ok, [check for check in report.checks if check.violations]
    return database


async def list_much(tx: Tx) -> dict[str, int]:
    return {name: read for name, read in (await count_read(tx)).items() if read > READ_MAX}


async def test_a_check_from_a_checkpoint_on_reads_nothing_of_what_was_verified(verified: Database) -> None:
    too_much = {}
    for invariant in INVARIANTS:
        if invariant.reads is Reads.STATE:
            continue
        async with verified.snapshot(application="check") as tx:
            await checkpoints.prepare_reading(tx)
            since = await checkpoints.find_verified(tx)
            await checkpoints.avoid_whole_tables(tx, invariant.reads, since)
            assert await find_violations(tx, invariant, since) == (0, [])
            if large := await list_much(tx):
                too_much[invariant.name] = large
    assert too_much == {}


async def test_a_check_of_everything_reads_it(verified: Database) -> None:
    (order,) = [invariant for invariant in INVARIANTS if invariant.name == "line_order"]
    async with verified.snapshot(application="check") as tx:
        assert await find_violations(tx, order, checkpoints.EVERYTHING) == (0, [])
        assert await list_much(tx) != {}


async def test_what_stands_now_is_checked_without_reading_who_ended(verified: Database) -> None:
    """Their number only grows; that of those who live does not."""
    too_much = {}
    for invariant in INVARIANTS:
        if invariant.reads is Reads.STATE:
            async with verified.snapshot(application="check") as tx:
                await checkpoints.prepare_reading(tx)
                assert await find_violations(tx, invariant, checkpoints.EVERYTHING) == (0, [])
                if (rows := (await list_much(tx)).get("execution", 0)) > WAITING:
                    too_much[invariant.name] = rows
    assert too_much == {}
