"""The database as the transport: the outbox is the queue, effect and acknowledgement are one commit.

Consumers are woken from inside the process or by a NOTIFY; both are hints, and polling finds what they miss.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NoReturn

import structlog

from attune.domain.messages import DEAD_TOPIC, Broadcast, Message
from attune.runtime.clock import draw, jittered_backoff, monotonic
from attune.storage import notices, outbox
from attune.storage.database import Database, may_work_later
from attune.storage.tx import Tx
from attune.transport.broadcasts import POLL_SECONDS, Listeners
from attune.transport.expiry import expire_dispatches
from attune.transport.limits import Limits
from attune.transport.topology import Queue, TopologyRow, describe, topics_of

WAKE_CHANNEL: Final = "attune_wake"
BROADCAST_CHANNEL: Final = "attune_broadcast"

ACTIVE_FOR_SECONDS = 30.0

# PostgreSQL refuses a payload of 8,000 bytes; the longest topic has less than 60.
TOPICS_PER_PAYLOAD = 100

RECONNECT_FIRST_SECONDS = 0.1
RECONNECT_CEILING_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresOptions:
    """What an operator may want different."""

    # None: untaken dispatches do not expire, the timeout sweep is the only net.
    dispatch_ttl_seconds: float | None = 300.0
    revision_poll_seconds: float = POLL_SECONDS
    # How often topics are looked at: for a while after the last activity, and when nothing happens.
    poll_active_seconds: float = 0.25
    poll_idle_seconds: float = 1.0


class PostgresTransport:
    """Wakes consumers of the outbox, in this process and in others."""

    name = "postgres"

    def __init__(self, database: Database, options: PostgresOptions | None = None) -> None:
        self._database = database
        self._options = options or PostgresOptions()
        self._sources: set[PostgresSource] = set()
        self._listeners = Listeners(database, poll_seconds=self._options.revision_poll_seconds)
        self._calls = _Calls()
        self._active_until = 0.0
        self._look = asyncio.Event()
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Listen, poll, call and expire until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again_and_again("listen", self._listen), name="postgres-listen")
            tasks.create_task(self._again_and_again("poll", self._poll), name="postgres-poll")
            tasks.create_task(self._again_and_again("call", self._call), name="postgres-call")
            tasks.create_task(self._listeners.poll(), name="postgres-revisions")
            if self._options.dispatch_ttl_seconds is not None:
                tasks.create_task(self._again_and_again("expire", self._expire), name="postgres-expire")

    async def declare(self, queues: Sequence[Queue]) -> None:
        """Nothing has to be made: the topics are part of the schema."""
        self._log.info("infrastructure setup", transport=self.name, queues=[queue.name for queue in queues])

    @asynccontextmanager
    async def consume(self, queue: Queue, limits: Limits) -> "AsyncIterator[PostgresSource]":
        """Take part in consuming a queue."""
        source = PostgresSource(self._database, queue, limits)
        self._sources.add(source)
        self._look.set()
        self._log.info("consumer started", queue=queue.name, topics=sorted(map(str, queue.topics)))
        try:
            yield source
        finally:
            self._sources.discard(source)

    async def after_commit(self, messages: Sequence[Message], broadcasts: Sequence[Broadcast]) -> None:
        """Wake local consumers now; others are called from a side connection, never by the committing one."""
        due = {message.topic for message in messages if message.not_before <= message.created}
        self._wake(due)
        local = {topic for source in self._sources for topic in source.topics}
        self._calls.add_topics(due - local)
        self._calls.add_broadcasts(broadcasts)
        self._listeners.tell(broadcasts)

    def broadcasts(self) -> AsyncIterator[Broadcast]:
        """Every change of every kind of thing."""
        return self._listeners.listen()

    def problems(self) -> list[str]:
        """Nothing can be wrong with this transport that is not wrong with the database."""
        return []

    async def inspect(self, queues: Sequence[Queue], *, repair: bool = False) -> list[TopologyRow]:  # noqa: ARG002  nothing can break here
        """The queues as they are meant to be; the schema itself keeps them so."""
        return [describe(queue) for queue in queues]

    def _wake(self, topics: Iterable[str]) -> None:
        due = set(topics)
        for source in self._sources:
            if woken := due.intersection(source.topics):
                source.wake(woken)
                self._active_until = monotonic() + ACTIVE_FOR_SECONDS

    async def _again_and_again(self, name: str, work: Callable[[], Awaitable[None]]) -> NoReturn:
        """Work that ends only by losing the database starts again when that is back."""
        failures = 0
        while True:
            started = monotonic()
            try:
                await work()
            except Exception as error:
                if not may_work_later(error):
                    raise
                failures = 1 if monotonic() - started > RECONNECT_CEILING_SECONDS else failures + 1
                self._log.warning("transport.interrupted", work=name, error=str(error))
            await asyncio.sleep(
                jittered_backoff(
                    failures,
                    first_seconds=RECONNECT_FIRST_SECONDS,
                    ceiling_seconds=RECONNECT_CEILING_SECONDS,
                    drawn=draw(),
                )
            )

    async def _listen(self) -> None:
        await notices.listen(self._database, (WAKE_CHANNEL, BROADCAST_CHANNEL), self._hear, application="attune listen")

    def _hear(self, channel: str, payload: str) -> None:
        if channel == WAKE_CHANNEL:
            self._wake(payload.split())
        elif channel == BROADCAST_CHANNEL:
            entity, _, revision = payload.rpartition(" ")
            self._listeners.tell([Broadcast(entity=entity, revision=int(revision))])
        else:
            self._look.set()

    async def _poll(self) -> None:
        while True:
            self._look.clear()
            by_patience: dict[float, set[str]] = {}
            for source in self._sources:
                by_patience.setdefault(source.limits.suspect_seconds, set()).update(source.topics)
            # One statement, unless consumers of one process were given different limits.
            for suspect_seconds, topics in by_patience.items():
                await self._look_for_due(sorted(topics), suspect_seconds)
            active = monotonic() < self._active_until
            pause = self._options.poll_active_seconds if active else self._options.poll_idle_seconds
            try:
                async with asyncio.timeout(pause):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def _look_for_due(self, topics: list[str], suspect_seconds: float) -> None:
        async with self._database.reading() as tx:
            found = await outbox.find_due(tx, topics, suspect_seconds=suspect_seconds)
        self._wake(due.topic for due in found if due.fresh)
        for source in self._sources:
            if suspects := {due.topic for due in found if due.suspect}.intersection(source.topics):
                source.suspect(suspects)
                self._active_until = monotonic() + ACTIVE_FOR_SECONDS

    async def _call(self) -> None:
        side = notices.SideConnection(self._database, application="attune notify")
        try:
            while True:
                topics, broadcasts = await self._calls.next()
                if topics:
                    await side.notify(WAKE_CHANNEL, topics)
                if broadcasts:
                    await side.notify(BROADCAST_CHANNEL, broadcasts)
        finally:
            side.close()

    async def _expire(self) -> None:
        ttl_seconds = self._options.dispatch_ttl_seconds
        if ttl_seconds is not None:
            await expire_dispatches(
                self._database,
                ttl_seconds=ttl_seconds,
                is_mine=lambda: any(DEAD_TOPIC in source.topics for source in self._sources),
                moved=lambda _: self._wake([DEAD_TOPIC]),
            )


class PostgresSource:
    """One queue's topics in the outbox."""

    def __init__(self, database: Database, queue: Queue, limits: Limits) -> None:
        self._database = database
        self.topics = frozenset(topics_of([queue]))
        self.limits = limits
        # Insertion order is the order of asking, so that a busy topic does not starve its neighbours.
        self._due: dict[str, None] = dict.fromkeys(queue.topics)
        self._suspects: set[str] = set()
        self._awake = asyncio.Event()
        self._awake.set()

    def wake(self, topics: Iterable[str]) -> None:
        """There may be something to take."""
        self._due.update(dict.fromkeys(topics))
        self._awake.set()

    def suspect(self, topics: Iterable[str]) -> None:
        """There may be something to take with care."""
        self._suspects.update(topics)
        self._awake.set()

    async def wait(self) -> None:
        await self._awake.wait()

    async def take(self, tx: Tx, limit: int) -> list[Message]:
        """Messages of one topic; the topics that were not asked come first the next time."""
        taken: list[Message] = []
        while self._due and not taken:
            topic = next(iter(self._due))
            # Forgotten before it is asked for: a message that is committed after the question wakes us again.
            del self._due[topic]
            taken = await outbox.take(tx, topic, limit=limit, suspect_seconds=self.limits.suspect_seconds)
            if len(taken) == limit:
                self._due[topic] = None
        self._sleep_if_done()
        return taken

    async def take_suspect(self) -> Message | None:
        for topic in sorted(self._suspects):
            async with self._database.transaction() as tx:
                message = await outbox.count_suspect(
                    tx,
                    topic,
                    suspect_seconds=self.limits.suspect_seconds,
                    backoff_seconds=self.limits.backoff_seconds,
                )
            if message:
                return message
            self._suspects.discard(topic)
        self._sleep_if_done()
        return None

    async def retake(self, tx: Tx, message: Message) -> bool:
        return await outbox.delete(tx, message.id)

    async def put_off(self, tx: Tx, message: Message, *, delay_seconds: float) -> None:
        await outbox.count_failed(tx, message.id, delay_seconds=delay_seconds)

    async def give_back(self, messages: Sequence[Message]) -> None:
        self.wake({message.topic for message in messages})

    async def settle(self, messages: Sequence[Message]) -> None:
        """The commit was the acknowledgement."""

    def _sleep_if_done(self) -> None:
        if not self._due and not self._suspects:
            self._awake.clear()


class _Calls:
    """What other processes are still to be told: gathered while a call is under way, so that one more suffices."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._broadcasts: dict[str, int] = {}
        self._any = asyncio.Event()

    def add_topics(self, topics: set[str]) -> None:
        if topics:
            self._topics |= topics
            self._any.set()

    def add_broadcasts(self, broadcasts: Sequence[Broadcast]) -> None:
        for broadcast in broadcasts:
            newest = max(broadcast.revision, self._broadcasts.get(broadcast.entity, 0))
            self._broadcasts[broadcast.entity] = newest
            self._any.set()

    async def next(self) -> tuple[list[str], list[str]]:
        """Everything to be told, as payloads."""
        await self._any.wait()
        self._any.clear()
        topics, broadcasts = sorted(self._topics), self._broadcasts
        self._topics, self._broadcasts = set(), {}
        chunks = [topics[start : start + TOPICS_PER_PAYLOAD] for start in range(0, len(topics), TOPICS_PER_PAYLOAD)]
        return [" ".join(chunk) for chunk in chunks], [f"{entity} {number}" for entity, number in broadcasts.items()]
