"""The outbox's statements: what each takes, counts, claims and moves."""

from __future__ import annotations

from attune.domain.messages import DEAD_TOPIC, Message, MessageType, dispatch_topic
from attune.storage import outbox
from attune.storage.database import Database

TOPIC = MessageType.EVENT_CREATED


async def announce(database: Database, *items: int, topic: str = TOPIC, delay_seconds: float = 0.0) -> None:
    for item in items:
        async with database.transaction() as tx:
            tx.announce(topic, MessageType.EVENT_CREATED, [(item, 1)], delay_seconds=delay_seconds)


async def age(database: Database, seconds: float) -> None:
    async with database.transaction() as tx:
        await tx.execute(
            """
            UPDATE outbox SET not_before = not_before - make_interval(secs => $1),
                              created = created - make_interval(secs => $1)
            """,
            seconds,
        )


async def take(database: Database, limit: int = 10) -> list[Message]:
    async with database.transaction() as tx:
        return await outbox.take(tx, TOPIC, limit=limit, suspect_seconds=30)


async def test_two_consumers_never_take_the_same_message(database: Database) -> None:
    await announce(database, 1, 2, 3)
    async with database.transaction() as first, database.transaction() as second:
        one = await outbox.take(first, TOPIC, limit=2, suspect_seconds=30)
        two = await outbox.take(second, TOPIC, limit=2, suspect_seconds=30)
    assert sorted(message.items[0][0] for message in one + two) == [1, 2, 3]


async def test_only_due_messages_nothing_speaks_against_are_taken(database: Database) -> None:
    await announce(database, 1, delay_seconds=60)
    await announce(database, 2)
    (taken,) = await take(database)
    assert taken.items == ((2, 1),)


async def test_an_old_message_is_a_suspect_and_counted(database: Database) -> None:
    await announce(database, 1)
    await age(database, 31)
    assert await take(database) == []
    async with database.transaction() as tx:
        suspect = await outbox.count_suspect(tx, TOPIC, suspect_seconds=30, backoff_seconds=1)
    assert suspect is not None
    assert suspect.deliveries == 1
    assert suspect.not_before > suspect.created
    async with database.transaction() as tx:
        assert await outbox.count_suspect(tx, TOPIC, suspect_seconds=30, backoff_seconds=1) is None


async def test_what_is_due_is_told_by_topic_and_kind(database: Database) -> None:
    await announce(database, 1)
    await announce(database, 2, topic=MessageType.LINE_CHANGED)
    await announce(database, 3, topic=MessageType.POOL_CHANGED, delay_seconds=60)
    async with database.transaction() as tx:
        await tx.execute("UPDATE outbox SET deliveries = 1 WHERE topic = 'line.changed'")
        topics = [TOPIC, MessageType.LINE_CHANGED, MessageType.POOL_CHANGED]
        found = await outbox.find_due(tx, topics, suspect_seconds=30)
    assert {(due.topic, due.fresh, due.suspect) for due in found} == {
        ("event.created", True, False),
        ("line.changed", False, True),
        ("pool.changed", False, False),
    }


async def claim(database: Database) -> list[int]:
    async with database.transaction() as tx:
        claimed = await outbox.claim_overdue(tx, limit=10, overdue_seconds=2, claim_seconds=10)
    return [message.items[0][0] for message in claimed]


async def test_the_relay_leaves_fresh_messages_to_their_publisher(database: Database) -> None:
    await announce(database, 1)
    assert await claim(database) == []
    await age(database, 3)
    assert await claim(database) == [1]


async def test_a_claimed_message_is_not_claimed_again_before_its_time(database: Database) -> None:
    await announce(database, 1)
    await age(database, 3)
    assert await claim(database) == [1]
    assert await claim(database) == []
    await age(database, 11)
    assert await claim(database) == [1]


async def test_a_delayed_message_has_no_publisher_and_is_claimed_when_due(database: Database) -> None:
    await announce(database, 1, delay_seconds=60)
    assert await claim(database) == []
    await age(database, 60)
    assert await claim(database) == [1]


async def test_only_dispatches_expire_and_only_old_ones(database: Database) -> None:
    await announce(database, 1, topic=dispatch_topic(3))
    await announce(database, 2)
    await age(database, 10)
    await announce(database, 3, topic=dispatch_topic(3))
    async with database.transaction() as tx:
        assert len(await outbox.expire_dispatches(tx, ttl_seconds=5, limit=10)) == 1
        (dead,) = await outbox.take(tx, DEAD_TOPIC, limit=10, suspect_seconds=30)
    assert dead.items == ((1, 1),)
    assert dead.deaths[0].startswith("execution.dispatch.worker.3 expired at ")


async def test_a_count_can_be_taken_back(database: Database) -> None:
    await announce(database, 1)
    async with database.transaction() as tx:
        (message_id,) = await tx.fetch_column("SELECT id FROM outbox")
        assert await outbox.count_failed(tx, message_id, delay_seconds=0)
        await outbox.uncount(tx, message_id, delay_seconds=0)
        await outbox.uncount(tx, message_id, delay_seconds=0)
        assert await tx.fetch_value("SELECT deliveries FROM outbox") == 0


async def test_a_back_off_does_not_double_for_ever(database: Database) -> None:
    await announce(database, 1)
    async with database.transaction() as tx:
        await tx.execute("UPDATE outbox SET deliveries = 99")
        suspect = await outbox.count_suspect(tx, TOPIC, suspect_seconds=30, backoff_seconds=1)
    assert suspect is not None
    assert (suspect.not_before - suspect.created).total_seconds() < 70


async def test_the_measure_counts_what_is_due_and_the_age_of_the_oldest(database: Database) -> None:
    await announce(database, 1, 2)
    await age(database, 40)
    await announce(database, 3, delay_seconds=60)
    async with database.reading() as tx:
        rows, oldest = await outbox.measure(tx, limit=100)
        assert rows == 2
        assert 40 <= oldest < 60
        assert (await outbox.measure(tx, limit=1))[0] == 1
