"""A process's worth of transport for tests: a pool, a transport that runs, and handlers that leave traces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from attune.domain.messages import DeadLetter, Item, Message, MessageType
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.storage.views import dead_letters
from attune.storage.views.dead_letters import DeadLetterFilter
from attune.transport.consume import Handler, Tally, consume
from attune.transport.limits import Limits
from attune.transport.postgres import PostgresOptions, PostgresTransport
from attune.transport.protocol import Transport
from attune.transport.rabbitmq import RabbitOptions, RabbitTransport, ReturnedDispatch
from attune.transport.topology import EXECUTOR_QUEUES, Queue

EVENTS = EXECUTOR_QUEUES[0]
REQUESTS = EXECUTOR_QUEUES[2]
DEADLINE_SECONDS = 20.0

# Small pauses, so that what takes minutes in production takes a second here.
QUICK = Limits(batch_max=100, backoff_seconds=0.05, suspect_seconds=30.0, unknown_type_seconds=0.1)


@dataclass(kw_only=True)
class Station:
    """One process as the transport sees it."""

    database: Database
    transport: Transport
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def announce(
        self,
        items: Sequence[Item],
        *,
        topic: str = MessageType.EVENT_CREATED,
        type_: MessageType = MessageType.EVENT_CREATED,
        delay_seconds: float = 0.0,
    ) -> None:
        """One message for each item, in one transaction each hundred."""
        for start in range(0, len(items), 100):
            async with self.database.transaction() as tx:
                for number, item in enumerate(items[start : start + 100]):
                    # The tiny difference in delay keeps what is announced together in separate messages.
                    tx.announce(topic, type_, [item], delay_seconds=delay_seconds or -number * 1e-6)

    @asynccontextmanager
    async def consuming(
        self, queue: Queue, handler: Handler, limits: Limits = QUICK, *, types: frozenset[str] | None = None
    ) -> AsyncIterator[Tally]:
        """Declare and consume a queue for as long as the block lasts."""
        tally = Tally()
        await self.transport.declare([queue])
        async with self.transport.consume(queue, limits) as source:
            known = frozenset(MessageType) if types is None else types
            task = asyncio.create_task(consume(self.database, source, handler, limits, tally=tally, types=known))
            try:
                yield tally
            finally:
                await end(task)


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait; if it had failed, fail with it."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def build_transport(
    database: Database,
    broker_url: str,
    *,
    dispatch_ttl_seconds: float = 300.0,
    on_returned_dispatch: ReturnedDispatch | None = None,
) -> Transport:
    """The transport of this parameter; an empty address means PostgreSQL."""
    if not broker_url:
        return PostgresTransport(
            database, PostgresOptions(dispatch_ttl_seconds=dispatch_ttl_seconds, revision_poll_seconds=0.5)
        )
    options = RabbitOptions(
        url=broker_url,
        dispatch_ttl_seconds=dispatch_ttl_seconds,
        relay_overdue_seconds=1.0,
        relay_claim_seconds=4.0,
        relay_interval_seconds=0.1,
        returned_seconds=0.2,
        watchdog_seconds=0.5,
        revision_poll_seconds=0.5,
        reconnect_ceiling_seconds=0.5,
        publish_seconds=3.0,
    )
    return RabbitTransport(database, options, on_returned_dispatch=on_returned_dispatch)


@asynccontextmanager
async def station(
    database_url: str,
    broker_url: str,
    *,
    dispatch_ttl_seconds: float = 300.0,
    on_returned_dispatch: ReturnedDispatch | None = None,
) -> AsyncIterator[Station]:
    """A running process, joined as the composition joins it."""
    async with AsyncExitStack() as stack:
        database = await Database.connect(database_url, size=5, application="attune-station")
        stack.push_async_callback(database.close)
        transport = build_transport(
            database,
            broker_url,
            dispatch_ttl_seconds=dispatch_ttl_seconds,
            on_returned_dispatch=on_returned_dispatch,
        )
        database.after_commit = transport.after_commit
        running = asyncio.create_task(transport.run())
        stack.push_async_callback(end, running)
        yield Station(database=database, transport=transport)


async def leave_effect(tx: Tx, messages: Sequence[Message]) -> None:
    """A handler whose work can be counted afterwards, and which does not mind doing it twice."""
    items = [item[0] for message in messages for item in message.items]
    await tx.execute("INSERT INTO effect (item) SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING", items)


async def parked_letters(tx: Tx) -> list[DeadLetter]:
    """The dead letters, the newest first."""
    return await dead_letters.list_by_id(tx, await dead_letters.list_ids(tx, DeadLetterFilter(), before=2**62, limit=9))


async def effects(database: Database) -> list[int]:
    async with database.reading() as tx:
        return await tx.fetch_column("SELECT item FROM effect ORDER BY item")


async def count(database: Database, table: str) -> int:
    async with database.reading() as tx:
        found: int = await tx.fetch_value(f"SELECT count(*) FROM {table}")  # noqa: S608  a name written in the tests
        return found


async def eventually(holds: Callable[[], Awaitable[bool]], *, what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until something is so; a test that waits in vain says for what."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not await holds():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"after {seconds} s still not true: {what}")
        await asyncio.sleep(0.02)


async def wait_for_effects(database: Database, expected: int) -> list[int]:
    async def enough() -> bool:
        return await count(database, "effect") >= expected

    await eventually(enough, what=f"{expected} effects")
    return await effects(database)


async def wait_for_rows(database: Database, table: str, expected: int) -> None:
    async def reached() -> bool:
        return await count(database, table) == expected

    await eventually(reached, what=f"{expected} rows in {table}")
