"""Requests that commit together share nothing but the commit."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from attune.api.acceptance import Door
from attune.api.parts import ApiLimits
from attune.domain.errors import Unavailable
from attune.operations.acceptance import Acceptance, Request, Submission
from attune.storage.births import NewExecution
from attune.storage.database import Database
from tests.api.running import TESTER, install_demo
from tests.witness.prepare import prepare


async def prepared(database: Database) -> NewExecution:
    await install_demo(database)
    async with database.reading() as tx:
        (new,) = await prepare(tx, [Request(action_ref="demo.anything", parameters={})])
    return new


async def accepted_count(database: Database) -> int:
    async with database.reading() as tx:
        number: int = await tx.fetch_value("SELECT count(*) FROM execution")
        return number


async def test_what_only_the_database_refuses_fails_alone(database: Database) -> None:
    new = await prepared(database)
    bad = replace(new, trace_tag="half \ud800 a pair")
    door = Door(database, ApiLimits(batch_max=500))
    submissions = [Submission(prepared=(item,), by=TESTER) for item in [*[new] * 10, bad, *[new] * 10]]
    outcomes = await asyncio.gather(*(door.accept(each) for each in submissions), return_exceptions=True)
    assert [isinstance(outcome, Acceptance) for outcome in outcomes] == [True] * 10 + [False] + [True] * 10
    assert await accepted_count(database) == 20


async def test_a_commit_whose_outcome_is_unknown_is_never_repeated_by_us(database: Database) -> None:
    new = await prepared(database)
    async with database.transaction() as tx:
        await tx.execute(
            """
            CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$
            """
        )
        await tx.execute(
            """
            CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON execution DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION cut()
            """
        )
    door = Door(database, ApiLimits(batch_max=500))
    outcomes = await asyncio.gather(
        *(door.accept(Submission(prepared=(new,), by=TESTER)) for _ in range(5)), return_exceptions=True
    )
    assert [isinstance(outcome, Unavailable) for outcome in outcomes] == [True] * 5
    async with database.reading() as tx:
        tried = await tx.fetch_value("SELECT last_value FROM execution_id_seq")
    assert tried == 5


async def test_a_client_that_goes_away_does_not_take_its_neighbours_along(database: Database) -> None:
    new = await prepared(database)
    door = Door(database, ApiLimits(batch_max=500))
    asked = [asyncio.create_task(door.accept(Submission(prepared=(new,), by=TESTER))) for _ in range(10)]
    await asyncio.sleep(0)
    asked[3].cancel()
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(outcome, Acceptance) for outcome in outcomes] == [True] * 3 + [False] + [True] * 6


async def test_a_closed_door_finishes_what_it_took(database: Database) -> None:
    new = await prepared(database)
    door = Door(database, ApiLimits(batch_max=2))
    asked = [asyncio.create_task(door.accept(Submission(prepared=(new,), by=TESTER))) for _ in range(6)]
    await asyncio.sleep(0)
    await door.close()
    assert all(isinstance(outcome, Acceptance) for outcome in await asyncio.gather(*asked))
    assert await accepted_count(database) == 6


async def test_ids_ascend_in_the_order_of_asking(database: Database) -> None:
    new = await prepared(database)
    door = Door(database, ApiLimits(batch_max=7))
    outcomes = await asyncio.gather(*(door.accept(Submission(prepared=(new,), by=TESTER)) for _ in range(30)))
    ids = [outcome.ids[0] for outcome in outcomes]
    assert ids == sorted(ids)


@pytest.mark.parametrize("batch_max", [1, 500])
async def test_one_by_one_and_together_accept_the_same(database: Database, batch_max: int) -> None:
    new = await prepared(database)
    door = Door(database, ApiLimits(batch_max=batch_max))
    await asyncio.gather(*(door.accept(Submission(prepared=(new,), by=TESTER)) for _ in range(12)))
    async with database.reading() as tx:
        items = await tx.fetch_value("SELECT sum(jsonb_array_length(items)) FROM outbox")
        audited = await tx.fetch_value("SELECT count(*) FROM audit_log WHERE operation = 'execution.create'")
    assert (await accepted_count(database), items, audited) == (12, 12, 12)
