"""Dead letters: kept as they were, listed newest first, forgotten in the end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from attune.domain.endings.dead_letters import Outcome
from attune.domain.messages import Message
from attune.storage import dead_letters
from attune.storage.database import Database
from attune.storage.views import dead_letters as views
from attune.storage.views.dead_letters import DeadLetterFilter

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
MESSAGE = Message(
    id=1,
    topic="dead",
    type="execution.dispatched",
    items=((42, 1),),
    deliveries=5,
    created=MOMENT,
    not_before=MOMENT,
    deaths=("worker.3.executions expired at noon",),
)


async def park(database: Database, times: int = 1) -> list[int]:
    async with database.transaction() as tx:
        return [await dead_letters.insert(tx, MESSAGE, reason="failed too often", error="bug") for _ in range(times)]


async def test_a_dead_letter_keeps_what_the_message_said(database: Database) -> None:
    (parked,) = await park(database)
    async with database.reading() as tx:
        found = await views.find(tx, parked)
    assert found is not None
    assert (found.topic, found.type, found.items) == (MESSAGE.topic, MESSAGE.type, MESSAGE.items)
    assert (found.deliveries, found.deaths, found.created) == (5, MESSAGE.deaths, MOMENT)
    assert (found.reason, found.error, found.body) == ("failed too often", "bug", None)


async def test_what_could_not_be_read_is_kept_as_it_came(database: Database) -> None:
    async with database.transaction() as tx:
        parked = await dead_letters.insert_unreadable(
            tx, topic="attune.events.queue", body="{", reason="unreadable", error="no message"
        )
        found = await views.find(tx, parked)
    assert found is not None
    assert (found.body, found.type, found.items) == ("{", "unreadable", ())


async def test_pages_go_from_the_newest_to_the_oldest(database: Database) -> None:
    first, second, third = await park(database, 3)
    async with database.reading() as tx:
        newest = await views.list_ids(tx, DeadLetterFilter(), before=2**62, limit=2)
        rest = await views.list_ids(tx, DeadLetterFilter(), before=second, limit=2)
        assert (await views.measure(tx)).open == 3
    assert newest == [third, second]
    assert rest == [first]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (DeadLetterFilter(execution_id=42, worker_id=3, type="execution.dispatched"), True),
        (DeadLetterFilter(open=True, reason="failed too often", since=MOMENT), True),
        (DeadLetterFilter(execution_id=4), False),
        (DeadLetterFilter(worker_id=42), False),
        (DeadLetterFilter(open=False), False),
        (DeadLetterFilter(outcome="dropped"), False),
    ],
)
async def test_they_are_found_by_what_they_are_about(
    database: Database, wanted: DeadLetterFilter, *, found: bool
) -> None:
    parked = await park(database)
    async with database.reading() as tx:
        assert await views.list_ids(tx, wanted, before=2**62, limit=9) == (parked if found else [])


async def test_an_outcome_is_noted_and_ends_the_wait_for_a_person(database: Database) -> None:
    (parked,) = await park(database)
    async with database.transaction() as tx:
        await dead_letters.save_outcomes(tx, [(parked, Outcome.DROPPED)], by="ana")
        found = await views.find(tx, parked)
        assert (await views.measure(tx)).depth == 0
    assert found is not None
    assert (found.outcome, found.outcome_by, found.outcome_at is not None) == ("dropped", "ana", True)


async def test_the_oldest_are_forgotten_a_few_at_a_time(database: Database) -> None:
    await park(database, 3)
    async with database.transaction() as tx:
        await tx.execute("UPDATE dead_letter SET parked_at = now() - interval '2 days'")
    (kept,) = await park(database)
    async with database.transaction() as tx:
        assert await dead_letters.delete_older_than(tx, seconds=86_400, limit=2) == 2
        assert await dead_letters.delete_older_than(tx, seconds=86_400, limit=2) == 1
        assert await views.list_ids(tx, DeadLetterFilter(), before=2**62, limit=9) == [kept]
