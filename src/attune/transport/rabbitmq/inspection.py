"""Compares the broker with what should be there, mends what can be mended, and sends a dead letter through.

Only by means of the AMQP protocol: passive declarations, declarations, and a probe through each binding. A failed
question closes its channel, so each is asked on a channel of its own.
"""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import aio_pika
from aio_pika.abc import AbstractConnection
from aio_pika.exceptions import AMQPChannelError, ChannelPreconditionFailed, DeliveryError, PublishError

from attune.domain.errors import Unavailable
from attune.runtime.clock import new_uuid
from attune.transport.rabbitmq.declare import arguments_of, declare_all, exchange_types
from attune.transport.rabbitmq.link import BROKER_ERRORS, broker_calls, close, connect
from attune.transport.rabbitmq.options import REQUEST_SECONDS, RabbitOptions
from attune.transport.topology import PROBE_HEADER, Queue, TopologyMismatch, TopologyRow, describe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aio_pika.abc import AbstractChannel

SELF_TEST_SECONDS = 5.0
SELF_TEST_TTL_MS = 1

DECLARE_CURE = "start the service that declares it, or run `attune topology --repair`"
DRAIN_CURE = "let its messages be consumed, stop who consumes it, then run `attune topology --repair`"
REPAIR_CURE = "run `attune topology --repair`"
# Longer than the questions about a hundred workers take.
INSPECTION_SECONDS = 120.0


async def inspect_broker(options: RabbitOptions, queues: Sequence[Queue], *, repair: bool) -> list[TopologyRow]:
    """One row for each queue, and one more for each exchange that is wrong; mended first if asked."""
    try:
        async with asyncio.timeout(INSPECTION_SECONDS):
            return await _inspect(options, queues, repair=repair)
    except BROKER_ERRORS as error:
        raise Unavailable(f"RabbitMQ does not answer: {type(error).__name__}: {error}") from error


async def _inspect(options: RabbitOptions, queues: Sequence[Queue], *, repair: bool) -> list[TopologyRow]:
    connection = await connect(options, purpose="inspect")
    try:
        if repair:
            await _repair(connection, options, queues)
        rows: list[TopologyRow] = []
        for name in exchange_types(options.dead_letter_exchange):
            rows += await _inspect_exchange(connection, options, name)
        for queue in queues:
            rows.append(await _inspect_queue(connection, options, queue))
        return rows
    finally:
        await close(connection)


async def send_dead_letter_through(connection: AbstractConnection, options: RabbitOptions) -> str:
    """Let one message expire and wait for it behind the dead-letter exchange; returns what is wrong, if anything."""
    key = f"attune.self-test.{new_uuid().hex}"
    try:
        with broker_calls():
            async with asyncio.timeout(SELF_TEST_SECONDS), _channel(connection) as channel:
                arrivals = await channel.declare_queue(exclusive=True, auto_delete=True)
                # A pattern, as the real queue's binding is one: an exchange of the wrong type fails here.
                await arrivals.bind(options.dead_letter_exchange, f"{key}.#")
                dying = await channel.declare_queue(
                    exclusive=True,
                    auto_delete=True,
                    arguments={
                        "x-dead-letter-exchange": options.dead_letter_exchange,
                        "x-dead-letter-routing-key": f"{key}.letter",
                        "x-message-ttl": SELF_TEST_TTL_MS,
                    },
                )
                probe = aio_pika.Message(b"", headers={PROBE_HEADER: "self-test"})
                await channel.default_exchange.publish(probe, dying.name)
                async with arrivals.iterator(no_ack=True) as arriving:
                    await anext(arriving)
    except BROKER_ERRORS as error:
        return (
            f"a dead letter sent through {options.dead_letter_exchange} did not arrive ({type(error).__name__}: "
            f"{error}): untaken dispatches would be lost; run `attune topology --verify`"
        )
    return ""


async def _inspect_exchange(connection: AbstractConnection, options: RabbitOptions, name: str) -> list[TopologyRow]:
    kind = exchange_types(options.dead_letter_exchange)[name]
    row = TopologyRow(queue="", exchange=name, keys=(), declared_by="every service", consumed_by="")
    try:
        async with _channel(connection) as channel:
            await channel.declare_exchange(name, passive=True)
        async with _channel(connection) as channel:
            await channel.declare_exchange(name, kind, durable=True)
    except ChannelPreconditionFailed as error:
        return [replace(row, problem=f"not a durable {kind} exchange: {error}", cure=REPAIR_CURE)]
    except AMQPChannelError as error:
        return [replace(row, problem=f"missing: {error}", cure=DECLARE_CURE)]
    return []


async def _inspect_queue(connection: AbstractConnection, options: RabbitOptions, queue: Queue) -> TopologyRow:
    try:
        async with _channel(connection) as channel:
            found = (await channel.declare_queue(queue.name, passive=True)).declaration_result
    except AMQPChannelError as error:
        return describe(queue, problem=f"missing: {error}", cure=DECLARE_CURE)
    row = replace(describe(queue), messages=found.message_count, consumers=found.consumer_count)
    try:
        async with _channel(connection) as channel:
            arguments = arguments_of(queue, dead_letter_exchange=options.dead_letter_exchange)
            await channel.declare_queue(queue.name, durable=True, arguments={**arguments})
    except ChannelPreconditionFailed as error:
        in_use = found.message_count or found.consumer_count
        cure = DRAIN_CURE if in_use else REPAIR_CURE
        return replace(row, problem=f"declared differently: {error}", cure=cure)
    return await _inspect_bindings(connection, queue, row)


async def _inspect_bindings(connection: AbstractConnection, queue: Queue, row: TopologyRow) -> TopologyRow:
    for key in queue.keys:
        if not await _probe(connection, queue.exchange, key.replace("#", "probe")):
            return replace(row, problem=f"no queue is bound to {queue.exchange} for {key}", cure=DECLARE_CURE)
    if not row.consumers:
        return replace(row, problem="nobody consumes it", cure=f"start a service: `attune serve {queue.owner}`")
    return row


async def _probe(connection: AbstractConnection, exchange: str, key: str) -> bool:
    """Send a message that every consumer drops; without a consumer it expires at once."""
    probe = aio_pika.Message(b"", headers={PROBE_HEADER: key}, expiration=0)
    try:
        async with _channel(connection, raise_returned=True) as channel:
            target = await channel.get_exchange(exchange, ensure=False)
            await target.publish(probe, key, timeout=REQUEST_SECONDS)
    except (PublishError, DeliveryError, AMQPChannelError):
        return False
    return True


async def _repair(connection: AbstractConnection, options: RabbitOptions, queues: Sequence[Queue]) -> None:
    """Declare what is missing, and anew what differs: an exchange holds no messages, a queue must hold none."""
    for name in exchange_types(options.dead_letter_exchange):
        if await _inspect_exchange(connection, options, name):
            async with _channel(connection) as channel:
                await channel.exchange_delete(name)
    for queue in queues:
        try:
            await _declare(connection, options, queue)
        except TopologyMismatch:
            await _replace(connection, options, queue)


async def _declare(connection: AbstractConnection, options: RabbitOptions, queue: Queue) -> None:
    async with _channel(connection) as channel:
        await declare_all(channel, [queue], dead_letter_exchange=options.dead_letter_exchange)


async def _replace(connection: AbstractConnection, options: RabbitOptions, queue: Queue) -> None:
    """Not while it is consumed either: what a consumer holds would vanish with the queue."""
    try:
        async with _channel(connection) as channel:
            await channel.queue_delete(queue.name, if_empty=True, if_unused=True)
    except AMQPChannelError:
        # It holds messages or is consumed; the inspection that follows says so.
        return
    await _declare(connection, options, queue)


@asynccontextmanager
async def _channel(connection: AbstractConnection, *, raise_returned: bool = False) -> "AsyncIterator[AbstractChannel]":
    channel = await connection.channel(on_return_raises=raise_returned)
    try:
        yield channel
    finally:
        await close(channel)
