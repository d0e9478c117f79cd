"""The fate of messages that fail, in the loop that decides it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import asyncpg
import pytest

from attune.domain.errors import Conflict, Unavailable
from attune.domain.messages import Message, MessageType
from attune.storage.database import Database
from attune.storage.tx import Tx
from tests.transport.station import (
    EVENTS,
    QUICK,
    REQUESTS,
    Station,
    count,
    effects,
    eventually,
    leave_effect,
    station,
    wait_for_effects,
    wait_for_rows,
)


@pytest.fixture
async def here(database_url: str, effect_table: None) -> AsyncIterator[Station]:
    async with station(database_url, "") as running:
        yield running


def first_items(messages: Sequence[Message]) -> list[int]:
    return [message.items[0][0] for message in messages]


async def deliveries(database: Database) -> list[int]:
    async with database.reading() as tx:
        return await tx.fetch_column("SELECT deliveries FROM outbox ORDER BY id")


async def test_a_conflict_in_a_batch_drops_only_its_own_message(here: Station) -> None:
    async def conflict_over_two(tx: Tx, messages: Sequence[Message]) -> None:
        if 2 in first_items(messages):
            raise Conflict("somebody was faster")
        await leave_effect(tx, messages)

    await here.announce([(1, 0), (2, 0), (3, 0)])
    async with here.consuming(EVENTS, conflict_over_two) as tally:
        assert await wait_for_effects(here.database, 2) == [1, 3]
        await wait_for_rows(here.database, "outbox", 0)
    assert tally.conflicts == 1


async def test_nothing_that_a_failed_message_wrote_stays(here: Station) -> None:
    async def write_and_fail(tx: Tx, messages: Sequence[Message]) -> None:
        await leave_effect(tx, messages)
        raise Conflict("too late")

    await here.announce([(1, 0)])
    async with here.consuming(EVENTS, write_and_fail):
        await wait_for_rows(here.database, "outbox", 0)
    assert await effects(here.database) == []


async def test_what_a_handler_announces_exists_only_if_it_commits(here: Station) -> None:
    async def announce_and_conflict(tx: Tx, messages: Sequence[Message]) -> None:
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(9, 0)])
        if 1 in first_items(messages):
            raise Conflict("too late")

    await here.announce([(1, 0)])
    await here.announce([(2, 0)])
    async with here.consuming(EVENTS, announce_and_conflict, replace(QUICK, batch_max=1)) as tally:

        async def both() -> bool:
            return tally.conflicts + tally.handled == 2

        await eventually(both, what="both messages are done with")
    assert await count(here.database, "outbox") == 1


async def test_a_delivery_is_counted_before_a_message_that_failed_is_tried_again(here: Station) -> None:
    seen: list[list[int]] = []

    async def fail_once(tx: Tx, messages: Sequence[Message]) -> None:
        seen.append(await deliveries(here.database))
        if len(seen) == 1:
            raise RuntimeError("a bug")
        await leave_effect(tx, messages)

    await here.announce([(1, 0)])
    async with here.consuming(EVENTS, fail_once):
        await wait_for_effects(here.database, 1)
    # Seen from outside the handler's transaction: not counted at first, then counted for the failure and for the try.
    assert seen == [[0], [2]]


async def test_a_message_that_waited_suspiciously_long_runs_alone(here: Station) -> None:
    sizes: list[int] = []

    async def note_size(tx: Tx, messages: Sequence[Message]) -> None:
        sizes.append(len(messages))
        await leave_effect(tx, messages)

    async with here.database.transaction() as tx:
        await tx.execute(
            """
            INSERT INTO outbox (topic, type, items, not_before, created)
            SELECT 'event.created', 'event.created', jsonb_build_array(jsonb_build_array(n, 0)), at, at
              FROM generate_series(1, 3) AS n, (SELECT now() - interval '31 seconds') AS old (at)
            """
        )
    async with here.consuming(EVENTS, note_size):
        await wait_for_effects(here.database, 3)
    assert sizes == [1, 1, 1]


async def test_a_message_for_which_the_time_has_not_come_is_never_parked_nor_in_the_way(here: Station) -> None:
    tries: list[int] = []

    async def one_is_unavailable(tx: Tx, messages: Sequence[Message]) -> None:
        if 1 in first_items(messages):
            tries.append(len(messages))
            raise Unavailable("not now")
        await leave_effect(tx, messages)

    await here.announce([(1, 0), (2, 0), (3, 0)])
    async with here.consuming(EVENTS, one_is_unavailable, replace(QUICK, deliveries_max=1)) as tally:
        assert await wait_for_effects(here.database, 2) == [2, 3]

        async def often() -> bool:
            return len(tries) > 10

        await eventually(often, what="it was tried again and again")
    assert tally.parked.total() == 0
    assert await count(here.database, "outbox") == 1


async def test_a_suspect_is_not_blamed_for_what_may_work_later(here: Station) -> None:
    tries: list[int] = []

    async def fail_then_wait_then_work(tx: Tx, messages: Sequence[Message]) -> None:
        tries.append(messages[0].deliveries)
        if len(tries) == 1:
            raise RuntimeError("a bug")
        if len(tries) < 5:
            raise asyncpg.DeadlockDetectedError("deadlock")
        await leave_effect(tx, messages)

    await here.announce([(1, 0)])
    async with here.consuming(EVENTS, fail_then_wait_then_work, replace(QUICK, deliveries_max=2)):
        assert await wait_for_effects(here.database, 1) == [1]
    assert await count(here.database, "dead_letter") == 0


async def test_a_batch_that_lost_a_race_is_tried_again_as_a_batch(here: Station) -> None:
    sizes: list[int] = []

    async def lose_one_race(tx: Tx, messages: Sequence[Message]) -> None:
        sizes.append(len(messages))
        if len(sizes) == 1:
            raise asyncpg.SerializationError("could not serialize access")
        await leave_effect(tx, messages)

    await here.announce([(1, 0), (2, 0), (3, 0)])
    async with here.consuming(EVENTS, lose_one_race) as tally:
        await wait_for_effects(here.database, 3)
    assert sizes == [3, 3]
    assert tally.failed == 0


async def test_a_busy_topic_does_not_starve_its_neighbours(here: Station) -> None:
    order: list[str] = []

    async def note_topic(tx: Tx, messages: Sequence[Message]) -> None:
        order.extend(message.topic for message in messages)
        await leave_effect(tx, messages)

    busy = [(number, 0) for number in range(100)]
    await here.announce(busy, topic=MessageType.EXECUTION_REQUESTED, type_=MessageType.EXECUTION_REQUESTED)
    await here.announce([(100, 0)], topic=MessageType.POOL_CHANGED, type_=MessageType.POOL_CHANGED)
    async with here.consuming(REQUESTS, note_topic, replace(QUICK, batch_max=10)):
        await wait_for_effects(here.database, 101)
    assert order.index(MessageType.POOL_CHANGED) < 50


async def test_cancelling_in_the_middle_of_a_batch_leaves_it_to_others(here: Station) -> None:
    started = asyncio.Event()

    async def hang(_tx: Tx, _messages: Sequence[Message]) -> None:
        started.set()
        await asyncio.Event().wait()

    await here.announce([(1, 0), (2, 0)])
    async with here.consuming(EVENTS, hang):
        await started.wait()
    assert await deliveries(here.database) == [0, 0]
    async with here.consuming(EVENTS, leave_effect):
        assert await wait_for_effects(here.database, 2) == [1, 2]
