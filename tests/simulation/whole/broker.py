"""What carries messages: a broker that loses, repeats, delays and forgets, or the outbox itself.

The consumers are the real ones. What is simulated is the way from a commit to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

from attune.domain.messages import DEAD_TOPIC, Message
from attune.storage import outbox
from attune.storage.database import may_work_later
from attune.transport.limits import Limits
from attune.transport.postgres import PostgresSource
from attune.transport.rabbitmq.source import RabbitSource
from attune.transport.topology import Queue
from tests.simulation.whole.database import StoreDatabase
from tests.simulation.whole.rows import OutboxRow
from tests.simulation.whole.stand_ins.moments import moment
from tests.simulation.whole.store import Store
from tests.simulation.whole.virtual import Process, sleep

LIMITS = Limits(batch_max=4)
# As long as a dispatch may wait in a worker's queue.
TTL_SECONDS = 40.0
RELAY_SECONDS = 3.0
RELAY_OVERDUE_SECONDS = 2.0
RELAY_CLAIM_SECONDS = 10.0
POLL_SECONDS = 2.0
GATHER_SECONDS = 0.05
QUICK_SECONDS = 0.02
SLOW_SECONDS = 15.0


@dataclass(slots=True, kw_only=True)
class Weather:
    """How likely each message is to suffer."""

    lost: float = 0.0
    repeated: float = 0.0
    unconfirmed: float = 0.0
    slow: float = 0.0


@dataclass(eq=False, slots=True)
class Letter:
    """A message in the broker."""

    message: Message
    redelivered: bool = False


@dataclass(eq=False, kw_only=True)
class Consumer:
    """Somebody who consumes a queue through a connection that can be lost."""

    process: Process
    source: Any
    queue: Queue
    unacknowledged: list[Letter] = field(default_factory=list)


@dataclass(slots=True)
class _Delivery:
    """In the place of the driver's: only the acknowledgement is asked for."""

    broker: Broker
    consumer: Consumer
    letter: Letter
    delivery_tag: int = 0

    @property
    def channel(self) -> _Delivery:
        return self

    async def basic_ack(self, _tag: int, *, wait: bool) -> None:  # noqa: ARG002 — as the original
        self.broker.acknowledge(self.consumer, self.letter)


@dataclass(kw_only=True)
class Broker:
    """Queues, and who consumes them. Without queues of its own (`external` is off) the outbox is the queue."""

    store: Store
    dice: Random
    external: bool
    weather: Weather = field(default_factory=Weather)
    down: bool = False
    on_acknowledged: Callable[[Message], None] = lambda _message: None
    consumers: list[Consumer] = field(default_factory=list)
    _letters: dict[str, list[Letter]] = field(default_factory=dict)
    _confirmed: dict[Process, list[int]] = field(default_factory=dict)

    # Consuming

    def consume(self, process: Process, database: StoreDatabase, queue: Queue) -> Any:  # noqa: ANN401 — a Source
        """The real source of this queue, for one process."""
        kind = RabbitSource if self.external else PostgresSource
        source: Any = cast("Any", kind)(database, queue, LIMITS)
        consumer = Consumer(process=process, source=source, queue=queue)
        self.consumers.append(consumer)
        if self.external:
            self._pump(queue)
        return source

    def disconnect(self, process: Process) -> None:
        """Its connection is gone: what it has not acknowledged is delivered again."""
        for consumer in [each for each in self.consumers if each.process is process]:
            letters = self._letters.setdefault(consumer.queue.name, [])
            for letter in consumer.unacknowledged:
                letter.redelivered = True
                letters.append(letter)
            consumer.unacknowledged.clear()
            if self.external and process.alive:
                consumer.source._forget()
            if not process.alive:
                self.consumers.remove(consumer)
        for consumer in self.consumers:
            self._pump(consumer.queue)

    def wipe(self) -> None:
        """Everything it had is gone, and it does not know it."""
        self._letters.clear()
        for consumer in self.consumers:
            consumer.unacknowledged.clear()

    def come_back(self) -> None:
        self.down = False
        for consumer in self.consumers:
            self._pump(consumer.queue)

    def is_empty(self) -> bool:
        return not any(self._letters.values()) and not any(each.unacknowledged for each in self.consumers)

    def acknowledge(self, consumer: Consumer, letter: Letter) -> None:
        self.on_acknowledged(letter.message)
        if letter in consumer.unacknowledged:
            consumer.unacknowledged.remove(letter)

    def _pump(self, queue: Queue) -> None:
        """Hand out what waits, each letter to one of those who listen."""
        letters = self._letters.get(queue.name)
        listening = [each for each in self.consumers if each.queue.name == queue.name]
        if not letters or not listening or self.down:
            return
        for letter in letters:
            consumer = self.dice.choice(listening)
            consumer.unacknowledged.append(letter)
            self._deliver(consumer, letter)
        letters.clear()

    def _deliver(self, consumer: Consumer, letter: Letter) -> None:
        source = consumer.source

        def receive() -> None:
            if letter not in consumer.unacknowledged:
                return
            message = letter.message
            source._held.setdefault(message.id, []).append(_Delivery(self, consumer, letter))
            suspicious = letter.redelivered or message.deliveries > 0
            (source._suspects if suspicious else source._fresh).append(message)
            source._any.set()

        consumer.process.later(self._delay(), receive)

    def _delay(self) -> float:
        """Mostly quick, in any order; sometimes late."""
        if self.weather.slow and self.dice.random() < self.weather.slow:
            return self.dice.random() * SLOW_SECONDS
        return self.dice.random() * QUICK_SECONDS

    # Sending

    def attach(self, database: StoreDatabase, process: Process) -> None:
        """Let what this process commits be sent."""

        async def after_commit(messages: Sequence[Message]) -> None:
            for message in messages:
                if message.not_before <= message.created:
                    self._send(database, process, message)

        database.after_commit = after_commit  # type: ignore[method-assign]  # what the composition does, too

    def _send(self, database: StoreDatabase, process: Process, message: Message) -> None:
        if self.weather.lost and self.dice.random() < self.weather.lost:
            return
        if self.external:
            process.later(self._delay(), lambda: self._publish(database, process, message))
            return
        for consumer in self.consumers:
            if message.topic in consumer.source.topics:
                consumer.process.later(self._delay(), lambda source=consumer.source: source.wake({message.topic}))  # type: ignore[misc]  # a lambda with a default

    def _publish(self, database: StoreDatabase, process: Process, message: Message) -> None:
        if self.down:
            return
        repeated = self.weather.repeated and self.dice.random() < self.weather.repeated
        for _ in range(2 if repeated else 1):
            self._enqueue(message)
        if self.weather.unconfirmed and self.dice.random() < self.weather.unconfirmed:
            return
        confirmed = self._confirmed.setdefault(process, [])
        confirmed.append(message.id)
        if len(confirmed) == 1:
            process.later(GATHER_SECONDS, lambda: process.start(self._delete_confirmed(database, process)))

    async def _delete_confirmed(self, database: StoreDatabase, process: Process) -> None:
        batch = self._confirmed.pop(process, [])
        try:
            async with database.transaction() as tx:
                await outbox.delete_many(tx, batch)
        except Exception as error:
            if not may_work_later(error):
                raise

    def _enqueue(self, message: Message) -> None:
        queue = self._queue_of(message.topic)
        if queue is None:
            self._keep(message.topic, message)
            return
        self._keep(queue.name, message)
        self._pump(queue)

    def _keep(self, name: str, message: Message) -> None:
        letter = Letter(message)
        self._letters.setdefault(name, []).append(letter)
        if message.topic.startswith("execution.dispatch."):
            self.store.loop.at(TTL_SECONDS, lambda: self._expire(name, letter))

    def _expire(self, name: str, letter: Letter) -> None:
        letters = self._letters.get(name, [])
        if letter in letters:
            letters.remove(letter)
            died = f"{letter.message.topic} expired"
            deaths = (*letter.message.deaths, died)
            self._enqueue(replace(letter.message, topic=DEAD_TOPIC, deaths=deaths, created=moment(self.store.clock)))

    def _queue_of(self, topic: str) -> Queue | None:
        return next((each.queue for each in self.consumers if topic in each.queue.topics), None)

    def adopt(self, queue: Queue) -> None:
        """A queue that was not there has come; what was meant for it waits under its topics."""
        for topic in queue.topics:
            self._letters.setdefault(queue.name, []).extend(self._letters.pop(topic, []))

    # What a process does about messages besides consuming.

    async def relay(self, database: StoreDatabase, process: Process) -> None:
        """Take over what was committed and not sent. For ever."""
        while True:
            await sleep(RELAY_SECONDS * (0.5 + self.dice.random()))
            try:
                async with database.transaction() as tx:
                    claimed = await outbox.claim_overdue(
                        tx, limit=100, overdue_seconds=RELAY_OVERDUE_SECONDS, claim_seconds=RELAY_CLAIM_SECONDS
                    )
            except Exception as error:
                if not may_work_later(error):
                    raise
                continue
            for message in claimed:
                self._publish(database, process, message)

    async def poll(self, database: StoreDatabase, process: Process) -> None:
        """Look for what nobody was woken for. For ever."""
        while True:
            await sleep(POLL_SECONDS * (0.5 + self.dice.random()))
            if not await database.answers():
                continue
            now = self.store.clock
            mine = [each for each in self.consumers if each.process is process]
            for row in list(self.store.table("outbox").values()):
                for consumer in mine:
                    if row.topic in consumer.source.topics and row.not_before <= now:
                        self._point_at(consumer, row, now)

    def _point_at(self, consumer: Consumer, row: OutboxRow, now: float) -> None:
        if row.deliveries or row.not_before <= now - LIMITS.suspect_seconds:
            consumer.source.suspect({row.topic})
        else:
            consumer.source.wake({row.topic})
