"""RabbitMQ between commit and handler: one connection to publish, another to consume, and a watch over both."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from attune.domain.messages import DEAD_TOPIC, Broadcast, Message
from attune.runtime.clock import new_uuid
from attune.storage.database import Database, may_work_later
from attune.transport.broadcasts import Listeners
from attune.transport.expiry import expire_dispatches
from attune.transport.limits import Limits
from attune.transport.rabbitmq.declare import count_consumers, declare_all
from attune.transport.rabbitmq.inspection import inspect_broker, send_dead_letter_through
from attune.transport.rabbitmq.link import BROKER_ERRORS, Link, broker_calls, close
from attune.transport.rabbitmq.options import REQUEST_SECONDS, RabbitOptions, ReturnedDispatch
from attune.transport.rabbitmq.publisher import Publisher
from attune.transport.rabbitmq.source import RabbitSource
from attune.transport.topology import NOTIFICATIONS, Queue, TopologyRow, notification_queue

RETRY_SECONDS = 1.0
SELF_TEST_RETRY_SECONDS = 5.0


class RabbitTransport:
    """Publishes what this process commits, and consumes what it declared."""

    name = "rabbitmq"

    def __init__(
        self, database: Database, options: RabbitOptions, *, on_returned_dispatch: ReturnedDispatch | None = None
    ) -> None:
        self._database = database
        self._options = options
        self._publisher = Publisher(database, options, on_returned_dispatch=on_returned_dispatch)
        self._link = Link(options, purpose="consume", prepare=self._prepare)
        self._listeners = Listeners(database, poll_seconds=options.revision_poll_seconds)
        self._queues: dict[str, Queue] = {}
        self._sources: set[RabbitSource] = set()
        # With a slow broker starting takes a while; the watchdog must not take them for lost meanwhile.
        self._starting: set[RabbitSource] = set()
        self._self_test_problem = "no dead letter has been sent through yet"
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Keep both connections, relay, watch, test and expire until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publisher.run(), name="rabbitmq-publisher")
            tasks.create_task(self._link.run(), name="rabbitmq-consume-link")
            tasks.create_task(self._watch(), name="rabbitmq-watchdog")
            tasks.create_task(self._test_dead_letters(), name="rabbitmq-self-test")
            tasks.create_task(self._listeners.poll(), name="rabbitmq-revisions")
            if self._options.dispatch_ttl_seconds is not None:
                tasks.create_task(self._expire(self._options.dispatch_ttl_seconds), name="rabbitmq-expire")

    async def declare(self, queues: Sequence[Queue]) -> None:
        """Declare queues now and on every later connection; waits for the broker for as long as it takes."""
        while True:
            await self._link.up.wait()
            try:
                await self._declare_now(queues)
            except BROKER_ERRORS as error:
                self._log.warning("declaration.interrupted", error=repr(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            break
        self._queues.update((queue.name, queue) for queue in queues)
        self._log.info("infrastructure setup", transport=self.name, queues=[queue.name for queue in queues])

    @asynccontextmanager
    async def consume(self, queue: Queue, limits: Limits) -> AsyncIterator[RabbitSource]:
        """Consume a queue, now and through every later connection."""
        source = RabbitSource(self._database, queue, limits)
        self._sources.add(source)
        try:
            connection = self._link.connection
            if connection is not None:
                await self._start(source, connection)
            yield source
        finally:
            self._sources.discard(source)
            await source.stop()

    async def after_commit(self, messages: Sequence[Message], broadcasts: Sequence[Broadcast]) -> None:
        """Hand over to the publisher; the outbox has everything anyway."""
        self._publisher.submit(messages)
        self._listeners.tell(broadcasts)
        self._publisher.tell(broadcasts)

    def broadcasts(self) -> AsyncIterator[Broadcast]:
        """Every change of every kind of thing."""
        return self._listeners.listen()

    def problems(self) -> list[str]:
        """What keeps this process from sending, receiving, or having its dead letters seen."""
        return [
            problem
            for problem in (self._publisher.link.problem, self._link.problem, self._self_test_problem)
            if problem
        ]

    async def inspect(self, queues: Sequence[Queue], *, repair: bool = False) -> list[TopologyRow]:
        """Compare the broker with these queues, over a connection of its own."""
        return await inspect_broker(self._options, queues, repair=repair)

    async def _prepare(self, connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queues = list(self._queues.values())
        await declare_all(channel, queues, dead_letter_exchange=self._options.dead_letter_exchange)
        # Its own name for each connection: the broker may not have noticed yet that the last one is gone.
        heard = await channel.declare_queue(
            notification_queue(f"{self._options.instance}.{new_uuid().hex[:6]}"), exclusive=True
        )
        await heard.bind(NOTIFICATIONS)
        await heard.consume(self._hear, no_ack=True)
        self._link.watch(channel)
        started: set[RabbitSource] = set()
        # More may come while these are started; nothing waits between the last look and being up.
        while waiting := self._sources - started:
            for source in waiting:
                await self._start(source, connection)
            started |= waiting

    async def _start(self, source: RabbitSource, connection: AbstractConnection) -> None:
        self._starting.add(source)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                with broker_calls():
                    self._link.watch(await source.start(connection))
        except BROKER_ERRORS:
            # Half started: the next connection starts it again.
            self._link.lose()
            return
        finally:
            self._starting.discard(source)
        self._log.info("consumer started", queue=source.queue.name)

    async def _declare_now(self, queues: Sequence[Queue]) -> None:
        connection = self._link.connection
        if connection is None:
            raise ConnectionError("not connected to RabbitMQ")
        async with asyncio.timeout(REQUEST_SECONDS):
            with broker_calls():
                channel = await connection.channel(publisher_confirms=False)
                try:
                    await declare_all(channel, queues, dead_letter_exchange=self._options.dead_letter_exchange)
                finally:
                    await close(channel)

    async def _hear(self, delivery: AbstractIncomingMessage) -> None:
        entity, _, revision = delivery.body.decode(errors="replace").rpartition(" ")
        if entity and revision.isdecimal():
            self._listeners.tell([Broadcast(entity=entity, revision=int(revision))])

    async def _watch(self) -> None:
        """A consumer that the broker forgot takes the connection down, and everything comes back on the next."""
        while True:
            await asyncio.sleep(self._options.watchdog_seconds)
            if not self._link.up.is_set():
                continue
            for source in self._sources - self._starting:
                if not await self._is_consuming(source):
                    self._log.warning("consumer.lost", queue=source.queue.name)
                    self._link.lose()
                    break

    async def _is_consuming(self, source: RabbitSource) -> bool:
        connection = self._link.connection
        if connection is None:
            return False
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                with broker_calls():
                    consuming = await source.is_consuming()
                    return consuming and bool(await count_consumers(connection, source.queue.name))
        except BROKER_ERRORS:
            return False

    async def _test_dead_letters(self) -> None:
        """At the start, and until it worked once."""
        while self._self_test_problem:
            await self._link.up.wait()
            connection = self._link.connection
            if connection is not None:
                self._self_test_problem = await send_dead_letter_through(connection, self._options)
            if self._self_test_problem:
                self._log.error("dead_letters.self_test_failed", problem=self._self_test_problem)
                await asyncio.sleep(SELF_TEST_RETRY_SECONDS)

    async def _expire(self, ttl_seconds: float) -> None:
        while True:
            try:
                await expire_dispatches(
                    self._database,
                    ttl_seconds=ttl_seconds,
                    is_mine=lambda: any(DEAD_TOPIC in source.queue.topics for source in self._sources),
                    moved=self._publisher.submit,
                )
            except Exception as error:
                if not may_work_later(error):
                    raise
                self._log.warning("transport.interrupted", work="expire", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
