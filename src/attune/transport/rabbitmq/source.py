"""The messages of one of RabbitMQ's queues, held in memory until they are acknowledged.

A message the broker hands out a second time was there when something went wrong. It becomes a row whose delivery is
counted, is acknowledged, and is handled from there: so one that kills its process is counted although the process is
gone. Age says nothing here, unlike in the outbox: the broker itself tells what was delivered before.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

from attune.domain.messages import Message
from attune.runtime.failpoints import afailpoint
from attune.storage import dead_letters, outbox
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.transport.codec import NewerMessage, UnreadableMessage
from attune.transport.limits import Limits
from attune.transport.rabbitmq.link import BROKER_ERRORS, broker_calls, close
from attune.transport.rabbitmq.newer import Returning, is_hopeless
from attune.transport.rabbitmq.reading import is_probe, read, text_of
from attune.transport.topology import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unreadable:
    """A delivery that is no message of ours, and why."""

    delivery: AbstractIncomingMessage
    error: str


class RabbitSource:
    """One consumer of one queue; it outlives the connections it consumes through."""

    def __init__(self, database: Database, queue: Queue, limits: Limits) -> None:
        self._database = database
        self.queue = queue
        self._limits = limits
        self._channel: AbstractChannel | None = None
        self._tag = ""
        # Deliveries by message; the same message may be delivered twice at once.
        self._held: dict[int, list[AbstractIncomingMessage]] = {}
        self._fresh: deque[Message] = deque()
        self._suspects: deque[Message | _Unreadable] = deque()
        self._returning = Returning(hold_seconds=limits.unknown_type_seconds)
        self._any = asyncio.Event()
        self._log = structlog.get_logger()

    async def start(self, connection: AbstractConnection) -> AbstractChannel:
        """Consume through this connection; what an earlier one delivered will be delivered again."""
        self._forget()
        self._channel = await connection.channel(publisher_confirms=False)
        await self._channel.set_qos(prefetch_count=max(self._limits.prefetch, 1))
        declared = await self._channel.get_queue(self.queue.name, ensure=False)
        self._tag = await declared.consume(self._receive)
        return self._channel

    async def stop(self) -> None:
        """Hand everything that is not acknowledged back to the broker."""
        channel, self._channel = self._channel, None
        self._forget()
        if channel is not None and not channel.is_closed:
            await close(channel)

    async def is_consuming(self) -> bool:
        """Whether the broker would still deliver to us; it may have cancelled without our noticing."""
        if self._channel is None or self._channel.is_closed:
            return False
        underlay = await self._channel.get_underlay_channel()
        return self._tag in getattr(underlay, "consumers", {self._tag: None})

    async def wait(self) -> None:
        await self._any.wait()

    async def take(self, tx: Tx, limit: int) -> list[Message]:  # noqa: ARG002  the broker remembers, not the transaction
        """Messages of the type that has waited longest; the others come first the next time."""
        taken: list[Message] = []
        others: list[Message] = []
        while self._fresh and len(taken) < limit:
            message = self._fresh.popleft()
            (taken if not taken or message.type == taken[0].type else others).append(message)
        self._fresh.extendleft(reversed(others))
        self._sleep_if_done()
        return taken

    async def take_suspect(self) -> Message | None:
        while self._suspects:
            suspect = self._suspects[0]
            if isinstance(suspect, _Unreadable):
                await self._park(suspect)
                self._drop(suspect)
                continue
            counted = await self._count(suspect)
            self._drop(suspect)
            await self.settle([suspect])
            return counted
        self._sleep_if_done()
        return None

    async def retake(self, tx: Tx, message: Message) -> bool:
        """A suspect is a row by now; any other message is still held, unless its connection was lost."""
        return message.id in self._held or await outbox.delete(tx, message.id)

    async def put_off(self, tx: Tx, message: Message, *, delay_seconds: float) -> None:
        await outbox.insert_counted(tx, message, delay_seconds=delay_seconds)

    async def give_back(self, messages: Sequence[Message]) -> None:
        self._fresh.extendleft(message for message in reversed(messages) if message.id in self._held)
        self._any.set()

    async def settle(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if delivery := self._held_delivery(message):
                await self._acknowledge(delivery)

    async def _receive(self, delivery: AbstractIncomingMessage) -> None:
        if is_probe(delivery):
            await self._acknowledge(delivery)
            return
        try:
            message = read(delivery, self.queue)
        except UnreadableMessage as error:
            if isinstance(error, NewerMessage) and not is_hopeless(delivery):
                self._returning.hold(delivery)
                return
            self._suspects.append(_Unreadable(delivery=delivery, error=error.message))
        else:
            self._held.setdefault(message.id, []).append(delivery)
            suspicious = delivery.redelivered or message.deliveries > 0
            (self._suspects if suspicious else self._fresh).append(message)
        self._any.set()

    async def _count(self, message: Message) -> Message:
        delay = self._limits.backoff_seconds * 2.0 ** min(message.deliveries, outbox.DOUBLINGS_MAX)
        async with self._database.transaction() as tx:
            return await outbox.insert_counted(tx, message, delay_seconds=delay)

    async def _park(self, suspect: _Unreadable) -> None:
        async with self._database.transaction() as tx:
            await dead_letters.insert_unreadable(
                tx,
                topic=suspect.delivery.routing_key or self.queue.name,
                body=text_of(suspect.delivery.body),
                reason="unreadable",
                error=suspect.error,
            )
        self._log.error("message.unreadable", queue=self.queue.name, error=suspect.error)
        await afailpoint("dlq.parked.before_ack")
        await self._acknowledge(suspect.delivery)

    async def _acknowledge(self, delivery: AbstractIncomingMessage) -> None:
        """On the channel it came through: numbers of a later connection mean other messages."""
        try:
            with broker_calls():
                await delivery.channel.basic_ack(delivery.delivery_tag or 0, wait=False)
        except BROKER_ERRORS:
            # The connection is gone: the broker delivers again, and the handler finds the work done.
            return

    def _drop(self, suspect: Message | _Unreadable) -> None:
        """Unless the connection was lost meanwhile, and the list with it."""
        if self._suspects and self._suspects[0] is suspect:
            self._suspects.popleft()

    def _held_delivery(self, message: Message) -> AbstractIncomingMessage | None:
        held = self._held.get(message.id)
        if not held:
            return None
        delivery = held.pop()
        if not held:
            del self._held[message.id]
        return delivery

    def _forget(self) -> None:
        self._held.clear()
        self._fresh.clear()
        self._suspects.clear()
        self._returning.forget()

    def _sleep_if_done(self) -> None:
        if not self._fresh and not self._suspects:
            self._any.clear()
