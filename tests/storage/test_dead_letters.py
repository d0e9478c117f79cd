"""Dead letters: kept as they were, listed newest first, taken out once."""

from __future__ import annotations

from datetime import UTC, datetime

from attune.domain.messages import Message
from attune.storage import dead_letters
from attune.storage.database import Database

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
        found = await dead_letters.find(tx, parked)
    assert found is not None
    assert (found.topic, found.type, found.items) == (MESSAGE.topic, MESSAGE.type, MESSAGE.items)
    assert (found.deliveries, found.deaths, found.created) == (5, MESSAGE.deaths, MOMENT)
    assert (found.reason, found.error, found.body) == ("failed too often", "bug", None)


async def test_what_could_not_be_read_is_kept_as_it_came(database: Database) -> None:
    async with database.transaction() as tx:
        parked = await dead_letters.insert_unreadable(
            tx, topic="attune.events.queue", body="{", reason="unreadable", error="no message"
        )
        found = await dead_letters.find(tx, parked)
    assert found is not None
    assert (found.body, found.type, found.items) == ("{", "unreadable", ())


async def test_pages_go_from_the_newest_to_the_oldest(database: Database) -> None:
    first, second, third = await park(database, 3)
    async with database.reading() as tx:
        newest = await dead_letters.list_page(tx, before=None, limit=2)
        rest = await dead_letters.list_page(tx, before=second, limit=2)
        assert await dead_letters.count(tx) == 3
    assert [letter.id for letter in newest] == [third, second]
    assert [letter.id for letter in rest] == [first]


async def test_a_dead_letter_is_taken_out_once(database: Database) -> None:
    (parked,) = await park(database)
    async with database.transaction() as tx:
        assert [letter.id for letter in await dead_letters.delete(tx, [parked])] == [parked]
        assert await dead_letters.delete(tx, [parked]) == []
        assert await dead_letters.find(tx, parked) is None


async def test_the_oldest_are_forgotten_a_few_at_a_time(database: Database) -> None:
    await park(database, 3)
    async with database.transaction() as tx:
        await tx.execute("UPDATE dead_letter SET parked_at = now() - interval '2 days'")
    (kept,) = await park(database)
    async with database.transaction() as tx:
        assert await dead_letters.delete_older_than(tx, seconds=86_400, limit=2) == 2
        assert await dead_letters.delete_older_than(tx, seconds=86_400, limit=2) == 1
        assert [letter.id for letter in await dead_letters.list_page(tx, before=None, limit=9)] == [kept]
