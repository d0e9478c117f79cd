"""What only a broker can get wrong: topology, returns, unreadable messages, silent losses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from structlog.testing import capture_logs

from attune.domain.messages import Message, MessageType, dispatch_topic
from attune.runtime.failpoints import arm_failpoints, failpoint_hits, record_failpoints
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.transport.rabbitmq import RabbitOptions, inspect_broker
from attune.transport.rabbitmq.inspection import send_dead_letter_through
from attune.transport.rabbitmq.newer import PATIENCE_SECONDS
from attune.transport.topology import (
    DEAD_LETTERS,
    EXECUTOR_QUEUES,
    Queue,
    TopologyMismatch,
    dead_letter_queue,
    worker_queues,
)
from attune.transport.topology import (
    EVENTS as EVENTS_EXCHANGE,
)
from tests.transport.station import (
    DEADLINE_SECONDS,
    EVENTS,
    QUICK,
    Station,
    count,
    eventually,
    leave_effect,
    parked_letters,
    station,
    wait_for_effects,
    wait_for_rows,
)
from tests.witness.proxy import proxy_before

pytestmark = pytest.mark.rabbitmq

MANY = 20
DISPATCHES, CANCELS = worker_queues(3, ttl_ms=60_000)
ALL: Sequence[Queue] = (*EXECUTOR_QUEUES, dead_letter_queue(ttl_ms=60_000), DISPATCHES, CANCELS)


@pytest.fixture
async def here(database_url: str, rabbitmq_url: str, effect_table: None) -> AsyncIterator[Station]:
    async with station(database_url, rabbitmq_url) as running:
        yield running


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """Somebody else's hand on the broker."""
    async with open_connection(rabbitmq_url) as connection:
        yield await connection.channel()


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[AbstractConnection]:
    connection = await aio_pika.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_queue_that_differs_is_fatal_and_names_the_cure(here: Station, channel: AbstractChannel) -> None:
    await channel.declare_queue(DISPATCHES.name, durable=True, arguments={"x-message-ttl": 1})
    with pytest.raises(TopologyMismatch, match="attune topology --repair"):
        await here.transport.declare([DISPATCHES])


async def test_inspection_says_what_is_missing(rabbitmq_url: str) -> None:
    rows = await inspect_broker(RabbitOptions(url=rabbitmq_url), ALL, repair=False)
    assert {row.queue for row in rows if row.queue} == {queue.name for queue in ALL}
    assert all("missing" in row.problem and row.cure for row in rows)


async def test_inspection_finds_nothing_wrong_where_everybody_runs(here: Station, rabbitmq_url: str) -> None:
    async with (
        here.consuming(ALL[0], leave_effect),
        here.consuming(ALL[-2], leave_effect),
        here.consuming(ALL[-3], leave_effect),
    ):
        rows = await here.transport.inspect([ALL[0], ALL[-2], ALL[-3]])
        assert [row.problem for row in rows] == ["", "", ""]
        assert rows[0].declared_by == rows[0].consumed_by == "executor"
        await here.announce([(1, 0)])
        assert await wait_for_effects(here.database, 1) == [1]
        # The probes were dropped by the consumers, not handled and not parked.
        assert await count(here.database, "dead_letter") == 0


async def test_inspection_finds_a_missing_binding(here: Station, channel: AbstractChannel) -> None:
    await here.transport.declare(ALL)
    queue = await channel.get_queue(EVENTS.name)
    await queue.unbind(EVENTS_EXCHANGE, "event.#")
    rows = await here.transport.inspect([EVENTS])
    assert "no queue is bound" in rows[0].problem


async def test_repair_declares_an_empty_queue_anew(rabbitmq_url: str, channel: AbstractChannel) -> None:
    await channel.declare_exchange(DEAD_LETTERS, "direct", durable=True)
    await channel.declare_queue(DISPATCHES.name, durable=True, arguments={"x-message-ttl": 1})
    rows = await inspect_broker(RabbitOptions(url=rabbitmq_url), ALL, repair=True)
    assert {row.problem for row in rows} == {"nobody consumes it"}


async def test_repair_leaves_a_queue_that_holds_messages(rabbitmq_url: str, channel: AbstractChannel) -> None:
    await channel.declare_queue(DISPATCHES.name, durable=True, arguments={"x-message-ttl": 60_001})
    await channel.default_exchange.publish(aio_pika.Message(b"precious"), DISPATCHES.name)
    rows = await inspect_broker(RabbitOptions(url=rabbitmq_url), [DISPATCHES], repair=True)
    (row,) = [row for row in rows if row.queue]
    assert "declared differently" in row.problem
    assert row.messages == 1
    assert "let its messages be consumed" in row.cure


async def test_repair_leaves_a_queue_that_is_consumed(here: Station, rabbitmq_url: str) -> None:
    changed, _ = worker_queues(3, ttl_ms=1000)
    async with here.consuming(DISPATCHES, leave_effect):
        rows = await inspect_broker(RabbitOptions(url=rabbitmq_url), [changed], repair=True)
        assert "declared differently" in rows[-1].problem
        assert "stop who consumes it" in rows[-1].cure
        await here.announce([(1, 0)], topic=dispatch_topic(3), type_=MessageType.EXECUTION_DISPATCHED)
        assert await wait_for_effects(here.database, 1) == [1]


async def test_a_process_is_ready_once_a_dead_letter_came_through(here: Station) -> None:
    async def ready() -> bool:
        return here.transport.problems() == []

    await eventually(ready, what="no problems")


async def test_the_self_test_fails_where_dead_letters_are_dropped(rabbitmq_url: str) -> None:
    async with open_connection(rabbitmq_url) as connection:
        channel = await connection.channel()
        # The trap: on a direct exchange a pattern is a literal key.
        await channel.declare_exchange(DEAD_LETTERS, "direct", durable=True)
        problem = await send_dead_letter_through(connection, RabbitOptions(url=rabbitmq_url))
    assert "did not arrive" in problem


async def test_an_unreadable_message_is_parked_as_it_came(here: Station, channel: AbstractChannel) -> None:
    async with here.consuming(EVENTS, leave_effect):
        exchange = await channel.get_exchange(EVENTS_EXCHANGE)
        await exchange.publish(aio_pika.Message(b'{"not": "ours"}\x00'), "event.created")
        await wait_for_rows(here.database, "dead_letter", 1)
        await here.announce([(1, 0)])
        await wait_for_effects(here.database, 1)
    async with here.database.reading() as tx:
        (parked,) = await parked_letters(tx)
    assert parked.body == '{"not": "ours"}\\x00'
    assert parked.reason == "unreadable"
    found = await channel.get_queue(EVENTS.name)
    assert found.declaration_result.message_count == 0


NEWER = b'{"version": 2, "what": "nobody here can know"}'


async def test_a_message_of_a_newer_version_stays_for_whoever_can_read_it(
    here: Station, channel: AbstractChannel
) -> None:
    async with here.consuming(EVENTS, leave_effect):
        exchange = await channel.get_exchange(EVENTS_EXCHANGE)
        await exchange.publish(aio_pika.Message(NEWER, timestamp=datetime.now(UTC)), "event.created")
        await here.announce([(1, 0)])
        await wait_for_effects(here.database, 1)
        got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        queue = await channel.get_queue(EVENTS.name)
        await queue.consume(got.put, no_ack=True)
        async with asyncio.timeout(DEADLINE_SECONDS):
            given_back = await got.get()
    assert given_back.body == NEWER
    assert given_back.redelivered
    assert await count(here.database, "dead_letter") == 0


async def test_a_message_of_a_newer_version_that_nobody_came_for_is_parked(
    here: Station, channel: AbstractChannel
) -> None:
    long_ago = datetime.now(UTC) - timedelta(seconds=PATIENCE_SECONDS + 60)
    async with here.consuming(EVENTS, leave_effect):
        exchange = await channel.get_exchange(EVENTS_EXCHANGE)
        await exchange.publish(aio_pika.Message(NEWER, timestamp=long_ago), "event.created")
        await wait_for_rows(here.database, "dead_letter", 1)
    async with here.database.reading() as tx:
        (parked,) = await parked_letters(tx)
    assert parked.body == NEWER.decode()


async def test_a_returned_dispatch_is_given_to_whoever_placed_it(
    database_url: str, rabbitmq_url: str, effect_table: None
) -> None:
    returned: list[Message] = []

    async def unplace(message: Message) -> bool:
        returned.append(message)
        return True

    async with station(database_url, rabbitmq_url, on_returned_dispatch=unplace) as here:
        await here.transport.declare([EVENTS])
        await here.announce([(42, 1)], topic=dispatch_topic(9), type_=MessageType.EXECUTION_DISPATCHED)
        await wait_for_rows(here.database, "outbox", 0)
    assert [message.items for message in returned] == [((42, 1),)]


async def test_a_dispatch_that_can_never_be_sent_dies_by_its_ttl(
    database_url: str, rabbitmq_url: str, effect_table: None
) -> None:
    async with (
        station(database_url, rabbitmq_url, dispatch_ttl_seconds=0.5) as here,
        here.consuming(dead_letter_queue(ttl_ms=60_000), leave_effect),
    ):
        await here.announce([(42, 1)], topic=dispatch_topic(9), type_=MessageType.EXECUTION_DISPATCHED)
        assert await wait_for_effects(here.database, 1) == [42]


async def test_a_consumer_whose_queue_was_deleted_comes_back(here: Station, channel: AbstractChannel) -> None:
    async with here.consuming(EVENTS, leave_effect):
        await here.announce([(1, 0)])
        await wait_for_effects(here.database, 1)
        await channel.queue_delete(EVENTS.name)
        await here.announce([(2, 0)])
        assert await wait_for_effects(here.database, 2) == [1, 2]


async def test_a_consumer_that_starts_slowly_is_not_taken_for_lost(
    database: Database, database_url: str, rabbitmq_url: str, effect_table: None
) -> None:
    async with (
        proxy_before(rabbitmq_url) as proxy,
        station(database_url, proxy.redirect(rabbitmq_url)) as here,
    ):
        await here.transport.declare([EVENTS])
        with capture_logs() as told:
            # Longer for each of the steps of starting than the watchdog waits between two looks.
            proxy.delay_seconds = 0.3
            async with here.consuming(EVENTS, leave_effect):
                proxy.delay_seconds = 0.0
                await here.announce([(1, 0)])
                assert await wait_for_effects(database, 1) == [1]
        assert "consumer.lost" not in {each["event"] for each in told}


async def test_a_black_hole_delays_messages_and_loses_none(
    database: Database, database_url: str, rabbitmq_url: str, effect_table: None
) -> None:
    async with (
        proxy_before(rabbitmq_url) as proxy,
        station(database_url, proxy.redirect(rabbitmq_url)) as publishing,
        station(database_url, rabbitmq_url) as consuming,
        consuming.consuming(EVENTS, leave_effect),
    ):
        await publishing.transport.declare([EVENTS])
        proxy.black_hole()
        # Neither the commit nor the next one waits for a broker that does not answer.
        async with asyncio.timeout(1):
            await publishing.announce([(1, 0)])
            await publishing.announce([(2, 0)])
        assert await wait_for_effects(database, 2) == [1, 2]


async def test_a_lost_confirmation_means_a_second_delivery_and_one_effect(
    database: Database, database_url: str, rabbitmq_url: str, effect_table: None
) -> None:
    async with (
        proxy_before(rabbitmq_url) as proxy,
        station(database_url, proxy.redirect(rabbitmq_url)) as publishing,
        station(database_url, rabbitmq_url) as consuming,
        consuming.consuming(EVENTS, leave_effect) as tally,
    ):
        await publishing.transport.declare([EVENTS])
        proxy.swallow_to_client = True
        await publishing.announce([(1, 0)])
        await wait_for_effects(database, 1)
        await wait_for_rows(database, "outbox", 0)

        async def twice() -> bool:
            return tally.handled >= 2

        await eventually(twice, what="a second delivery")


async def test_a_broker_that_is_away_at_the_start_is_waited_for(
    database_url: str, rabbitmq_url: str, effect_table: None
) -> None:
    async with proxy_before(rabbitmq_url) as proxy:
        proxy.refuse = True
        async with station(database_url, proxy.redirect(rabbitmq_url)) as here:
            await here.announce([(1, 0)])
            declaring = asyncio.create_task(here.transport.declare([EVENTS]))

            async def tried() -> bool:
                return proxy.accepted > 2

            await eventually(tried, what="it tries to connect")
            assert not declaring.done()
            assert here.transport.problems()
            proxy.refuse = False
            await declaring
            async with here.consuming(EVENTS, leave_effect):
                assert await wait_for_effects(here.database, 1) == [1]


async def test_every_step_of_a_message_can_be_made_to_fail(here: Station, channel: AbstractChannel) -> None:
    record_failpoints()
    try:
        async with here.consuming(EVENTS, leave_effect, replace(QUICK, batch_max=1)):
            await here.announce([(1, 0)])
            await wait_for_effects(here.database, 1)
            exchange = await channel.get_exchange(EVENTS_EXCHANGE)
            await exchange.publish(aio_pika.Message(b"?"), "event.created")
            await wait_for_rows(here.database, "dead_letter", 1)
            await wait_for_rows(here.database, "outbox", 0)
        assert set(failpoint_hits()) >= {
            "consume.received.before_tx",
            "consume.before_commit",
            "consume.after_commit_before_ack",
            "publish.sent.before_confirm",
            "publish.confirmed.before_outbox_delete",
            "dlq.parked.before_ack",
        }
    finally:
        arm_failpoints("")


async def test_the_database_lost_while_a_failed_batch_is_judged_leaves_no_message_behind(here: Station) -> None:
    judged: list[int] = []

    async def fail(tx: Tx, messages: Sequence[Message]) -> None:
        arm_failpoints("")
        if len(messages) > 1 and not judged:
            judged.append(0)
            raise RuntimeError("a bug that needs company")
        if judged == [0]:
            judged.append(messages[0].id)
            # Its fate is written, and that it was is not told.
            arm_failpoints("storage.commit.before_answer=unknown")
            raise RuntimeError("a bug")
        await leave_effect(tx, messages)

    try:
        for number in range(MANY):
            await here.announce([(number, 0)])
        async with here.consuming(EVENTS, fail):
            assert await wait_for_effects(here.database, MANY) == list(range(MANY))
    finally:
        arm_failpoints("")
    assert len(judged) == 2
