"""What every transport promises; the same suite runs on each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from attune.domain.errors import Conflict, Invalid, Unavailable
from attune.domain.messages import Message, MessageType, dispatch_topic
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.transport.topology import dead_letter_queue, topics_of, worker_queues
from tests.transport.child import POISON
from tests.transport.children import child, wait_until_it_says
from tests.transport.station import (
    EVENTS,
    QUICK,
    REQUESTS,
    Station,
    count,
    effects,
    eventually,
    leave_effect,
    parked_letters,
    station,
    wait_for_effects,
    wait_for_rows,
)
from tests.witness.proxy import proxy_before

MANY = [(number, 0) for number in range(1, 501)]


class Stumbles(Exception):
    """A bug in a handler."""


async def stumble_over_poison(tx: Tx, messages: Sequence[Message]) -> None:
    if any(item[0] == POISON for message in messages for item in message.items):
        raise Stumbles("as it always does")
    await leave_effect(tx, messages)


async def test_a_committed_message_is_handled(here: Station) -> None:
    async with here.consuming(EVENTS, leave_effect):
        await here.announce([(7, 0)])
        assert await wait_for_effects(here.database, 1) == [7]
        await wait_for_rows(here.database, "outbox", 0)


async def test_a_message_announced_before_its_consumer_exists_is_handled(here: Station) -> None:
    await here.announce([(7, 0)])
    async with here.consuming(EVENTS, leave_effect):
        assert await wait_for_effects(here.database, 1) == [7]


async def test_a_message_of_a_transaction_that_failed_does_not_exist(here: Station) -> None:
    async def announce_and_fail() -> None:
        async with here.database.transaction() as tx:
            tx.announce(MessageType.EVENT_CREATED, MessageType.EVENT_CREATED, [(1, 0)])
            raise Stumbles

    with pytest.raises(Stumbles):
        await announce_and_fail()
    async with here.consuming(EVENTS, leave_effect):
        await here.announce([(2, 0)])
        assert await wait_for_effects(here.database, 1) == [2]


async def test_a_message_committed_by_one_process_is_handled_by_another(
    here: Station, database_url: str, broker_url: str
) -> None:
    async with station(database_url, broker_url) as there, there.consuming(EVENTS, leave_effect):
        await here.announce([(7, 0)])
        assert await wait_for_effects(here.database, 1) == [7]


async def test_every_topic_of_a_queue_is_consumed(here: Station) -> None:
    for number, topic in enumerate(topics_of([REQUESTS])):
        await here.announce([(number, 0)], topic=topic, type_=MessageType(topic))
    async with here.consuming(REQUESTS, leave_effect):
        assert await wait_for_effects(here.database, 3) == [0, 1, 2]


async def test_what_is_handled_together_is_of_one_type(here: Station) -> None:
    """A transaction that did the work of two would take its locks in two orders."""
    together: list[set[str]] = []

    async def remember(tx: Tx, messages: Sequence[Message]) -> None:
        together.append({message.type for message in messages})
        await leave_effect(tx, messages)

    topics = (MessageType.EXECUTION_REQUESTED, MessageType.LINE_CHANGED, MessageType.POOL_CHANGED)
    for number in range(60):
        await here.announce([(number, 0)], topic=topics[number % 3], type_=topics[number % 3])
    async with here.consuming(REQUESTS, remember):
        assert await wait_for_effects(here.database, 60) == list(range(60))
    assert {len(types) for types in together} == {1}


@pytest.mark.parametrize("batch_max", [1, 50])
async def test_messages_are_handled_in_batches_up_to_the_limit(here: Station, batch_max: int) -> None:
    sizes: list[int] = []

    async def handler(tx: Tx, messages: Sequence[Message]) -> None:
        sizes.append(len(messages))
        await leave_effect(tx, messages)

    await here.announce(MANY[:200])
    async with here.consuming(EVENTS, handler, replace(QUICK, batch_max=batch_max)):
        await wait_for_effects(here.database, 200)
    assert max(sizes) <= batch_max
    assert (len(sizes) < 200) == (batch_max > 1)


async def test_what_a_killed_consumer_held_is_handled_by_another(
    here: Station, database_url: str, broker_url: str
) -> None:
    async with child("hold", database_url, broker_url) as process:
        await wait_until_it_says(process, "ready")
        await here.announce(MANY[:20])
        await wait_until_it_says(process, "holding")
        assert await count(here.database, "effect") == 0
        process.kill()
        await process.wait()
    async with here.consuming(EVENTS, leave_effect):
        assert len(await wait_for_effects(here.database, 20)) == 20


async def test_a_delayed_message_comes_when_it_is_due(here: Station) -> None:
    async with here.consuming(EVENTS, leave_effect):
        await here.announce([(1, 0)], delay_seconds=1.0)
        async with here.database.reading() as tx:
            due = await tx.fetch_value("SELECT not_before FROM outbox")
        await wait_for_effects(here.database, 1)
        async with here.database.reading() as tx:
            assert await tx.fetch_value("SELECT at FROM effect") >= due


async def test_a_dispatch_nobody_takes_becomes_a_dead_letter_with_its_history(
    database_url: str, broker_url: str, effect_table: None
) -> None:
    seen: list[Message] = []

    async def bury(tx: Tx, messages: Sequence[Message]) -> None:
        seen.extend(messages)
        await leave_effect(tx, messages)

    dispatches, cancels = worker_queues(5, ttl_ms=400)
    async with station(database_url, broker_url, dispatch_ttl_seconds=0.4) as here:
        await here.transport.declare([dispatches, cancels])
        async with here.consuming(dead_letter_queue(ttl_ms=60_000), bury):
            await here.announce([(42, 3)], topic=dispatch_topic(5), type_=MessageType.EXECUTION_DISPATCHED)
            await wait_for_effects(here.database, 1)
        assert seen[0].items == ((42, 3),)
        assert seen[0].type == MessageType.EXECUTION_DISPATCHED
        assert seen[0].topic == "dead"
        assert "expired" in seen[0].deaths[0]
        assert "worker.5" in seen[0].deaths[0]


async def test_a_dispatch_that_is_taken_in_time_does_not_die(
    database_url: str, broker_url: str, effect_table: None
) -> None:
    dispatches, _ = worker_queues(5, ttl_ms=5000)
    async with station(database_url, broker_url, dispatch_ttl_seconds=5.0) as here:
        async with here.consuming(dispatches, leave_effect):
            await here.announce([(42, 3)], topic=dispatch_topic(5), type_=MessageType.EXECUTION_DISPATCHED)
            assert await wait_for_effects(here.database, 1) == [42]
        await wait_for_rows(here.database, "outbox", 0)


async def test_one_bad_message_among_many_good_ones_harms_only_itself(here: Station) -> None:
    await here.announce(MANY)
    async with here.consuming(EVENTS, stumble_over_poison, replace(QUICK, batch_max=500, prefetch=500)) as tally:
        found = await wait_for_effects(here.database, 499)
        await wait_for_rows(here.database, "dead_letter", 1)
    assert POISON not in found
    assert len(found) == 499
    assert tally.parked.total() == 1
    async with here.database.reading() as tx:
        (parked,) = await parked_letters(tx)
    assert parked.items == ((POISON, 0),)
    assert parked.reason == "failed too often"
    assert "as it always does" in parked.error
    await wait_for_rows(here.database, "outbox", 0)


async def test_a_message_that_kills_every_process_is_parked_and_its_neighbours_are_handled(
    here: Station, database_url: str, broker_url: str
) -> None:
    await here.transport.declare([EVENTS])
    await here.announce([(number, 0) for number in range(1, 31)])

    async def keep_restarting() -> None:
        while True:
            async with child("fragile", database_url, broker_url) as process:
                await process.wait()

    restarting = asyncio.create_task(keep_restarting())
    try:

        async def all_done() -> bool:
            parked = await count(here.database, "dead_letter")
            return parked == 1 and await count(here.database, "effect") == 29

        await eventually(all_done, what="29 effects and one dead letter", seconds=60)
    finally:
        restarting.cancel()
        await asyncio.gather(restarting, return_exceptions=True)
    async with here.database.reading() as tx:
        (parked,) = await parked_letters(tx)
    assert parked.items == ((POISON, 0),)
    assert parked.reason == "its process died too often"


async def test_a_conflict_drops_the_message_and_counts_it(here: Station) -> None:
    async def too_late(_tx: Tx, _messages: Sequence[Message]) -> None:
        raise Conflict("another replica was faster")

    await here.announce(MANY[:3])
    async with here.consuming(EVENTS, too_late) as tally:

        async def all_dropped() -> bool:
            return tally.conflicts == 3

        await eventually(all_dropped, what="three conflicts")
    await wait_for_rows(here.database, "outbox", 0)
    assert await count(here.database, "dead_letter") == 0


async def test_an_invalid_message_is_parked_at_once(here: Station) -> None:
    calls: list[int] = []

    async def refuse(_tx: Tx, messages: Sequence[Message]) -> None:
        calls.append(len(messages))
        raise Invalid("this never will work")

    await here.announce([(1, 0)])
    async with here.consuming(EVENTS, refuse):
        await wait_for_rows(here.database, "dead_letter", 1)
        await wait_for_rows(here.database, "outbox", 0)
    assert calls == [1]


async def test_what_may_work_later_is_tried_again_and_not_blamed(here: Station) -> None:
    calls: list[int] = []

    async def at_the_third_time(tx: Tx, messages: Sequence[Message]) -> None:
        calls.append(len(messages))
        if len(calls) < 3:
            raise Unavailable("not yet")
        await leave_effect(tx, messages)

    await here.announce([(1, 0)])
    async with here.consuming(EVENTS, at_the_third_time) as tally:
        await wait_for_effects(here.database, 1)
    assert tally.failed == 0
    assert tally.retried == 2


async def test_a_type_only_a_newer_version_knows_waits_for_it_and_is_parked_in_the_end(here: Station) -> None:
    known = frozenset({"event.created"})
    await here.announce([(1, 0)], type_=MessageType.POOL_CHANGED)
    await here.announce([(2, 0)])
    async with here.consuming(EVENTS, leave_effect, replace(QUICK, deliveries_max=1), types=known):
        assert await wait_for_effects(here.database, 1) == [2]
        await wait_for_rows(here.database, "dead_letter", 1)
    async with here.database.reading() as tx:
        (parked,) = await parked_letters(tx)
    assert parked.reason == "unknown type"


async def test_an_older_replica_leaves_the_types_it_does_not_know_to_a_newer_one(
    here: Station, database_url: str, broker_url: str
) -> None:
    await here.announce([(1, 0)], type_=MessageType.POOL_CHANGED)
    async with here.consuming(EVENTS, leave_effect, types=frozenset({"event.created"})) as old:

        async def put_off() -> bool:
            return old.failed > 0

        await eventually(put_off, what="the older replica puts it off")
    async with station(database_url, broker_url) as newer, newer.consuming(EVENTS, leave_effect):
        assert await wait_for_effects(here.database, 1) == [1]


async def test_consuming_goes_on_after_every_connection_was_cut(
    database_url: str, broker_url: str, effect_table: None
) -> None:
    async with proxy_before(database_url) as to_database, proxy_before(broker_url or database_url) as to_broker:
        through = to_broker.redirect(broker_url) if broker_url else ""
        async with station(to_database.redirect(database_url), through) as here, here.consuming(EVENTS, leave_effect):
            await here.announce(MANY[:10])
            await wait_for_effects(here.database, 10)
            for cut in range(1, 4):
                to_database.cut()
                to_broker.cut()
                await announce_through_trouble(here, MANY[cut * 10 : cut * 10 + 10])
                assert len(await wait_through_trouble(here, cut * 10 + 10)) == cut * 10 + 10


async def announce_through_trouble(here: Station, items: Sequence[tuple[int, int]]) -> None:
    """A client would ask again after an error."""
    async with asyncio.timeout(20):
        while True:
            try:
                return await here.announce(items)
            except Exception:  # noqa: BLE001  a cut connection may show as anything
                await asyncio.sleep(0.05)


async def wait_through_trouble(here: Station, expected: int) -> list[int]:
    async with asyncio.timeout(30):
        while True:
            try:
                return await wait_for_effects(here.database, expected)
            except (OSError, TimeoutError):
                await asyncio.sleep(0.05)


async def test_consuming_goes_on_after_the_database_was_away(
    database: Database, database_url: str, broker_url: str, effect_table: None
) -> None:
    async with (
        proxy_before(database_url) as proxy,
        station(proxy.redirect(database_url), broker_url) as there,
        station(database_url, broker_url) as here,
        there.consuming(EVENTS, leave_effect) as tally,
    ):
        await here.announce([(1, 0)])
        await wait_for_effects(database, 1)
        proxy.refuse = True
        proxy.cut()
        await here.announce([(2, 0)])

        async def noticed() -> bool:
            return proxy.accepted > 5

        await eventually(noticed, what="it tries to reconnect")
        assert await effects(database) == [1]
        proxy.refuse = False
        assert await wait_for_effects(database, 2) == [1, 2]
        assert tally.failed == 0


async def test_a_message_without_a_queue_waits_in_the_outbox_until_there_is_one(here: Station) -> None:
    await here.announce([(42, 1)], topic=dispatch_topic(9), type_=MessageType.EXECUTION_DISPATCHED)
    dispatches, _ = worker_queues(9, ttl_ms=60_000)
    assert await count(here.database, "outbox") == 1
    async with here.consuming(dispatches, leave_effect):
        assert await wait_for_effects(here.database, 1) == [42]
    await wait_for_rows(here.database, "outbox", 0)


async def test_a_broadcast_reaches_every_process(here: Station, database_url: str, broker_url: str) -> None:
    async def hear(receiver: Station) -> int:
        async for broadcast in receiver.transport.broadcasts():
            if broadcast.entity == "policy" and broadcast.revision >= 3:
                return broadcast.revision
        raise AssertionError("the broadcasts ended")

    async with station(database_url, broker_url) as one, station(database_url, broker_url) as two:
        hearing = [asyncio.create_task(hear(receiver)) for receiver in (here, one, two)]
        for _ in range(3):
            async with here.database.transaction() as tx:
                tx.broadcast("policy")
        async with asyncio.timeout(10):
            assert await asyncio.gather(*hearing) == [3, 3, 3]


async def test_a_receiver_that_comes_late_learns_how_things_stand(here: Station) -> None:
    async with here.database.transaction() as tx:
        tx.broadcast("pack")
    async with asyncio.timeout(10):
        async for broadcast in here.transport.broadcasts():
            assert (broadcast.entity, broadcast.revision) == ("pack", 1)
            break
