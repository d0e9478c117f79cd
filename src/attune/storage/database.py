"""Connections and transactions: the only way to PostgreSQL.

A transaction collects what its operation announces and writes it to the outbox before it commits, so that a message
exists exactly if its change does. After the commit one hook, set by the composition, wakes or publishes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

import asyncpg
import msgspec

from attune.domain.errors import Unavailable
from attune.domain.messages import ITEMS_MAX, Broadcast, Message
from attune.runtime.clock import draw, jittered_backoff, monotonic
from attune.runtime.failpoints import afailpoint
from attune.storage import outbox, revisions
from attune.storage.tx import Commit, End, PlainConnection, Pool, Tx

AfterCommit = Callable[[Sequence[Message], Sequence[Broadcast]], Awaitable[None]]
OnEnded = Callable[[Mapping[End, int]], None]

# No transaction that has written waits for the network, a process or a person; these limits say how long a mistake
# in that can last.
HOT_SETTINGS = {
    "search_path": "attune",
    "timezone": "UTC",
    "idle_in_transaction_session_timeout": "5s",
    "statement_timeout": "10s",
    "lock_timeout": "2s",
    "tcp_user_timeout": "10s",
    # A custom plan costs more than it saves on statements that touch rows by id.
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}

# How long closing waits for connections in use.
CLOSE_SECONDS = 5

# A database that needs longer for the smallest question counts as unreachable.
ANSWER_SECONDS = 5

# What PostgreSQL and the driver raise when trying again may help.
RETRYABLE: tuple[type[Exception], ...] = (
    Unavailable,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    # What the driver says when a connection was lost in a moment it did not expect.
    asyncpg.InternalClientError,
    ConnectionError,
    TimeoutError,
    OSError,
)


def may_work_later(error: BaseException) -> bool:
    """Whether trying again may help; an argument the driver could not encode never gets better."""
    return isinstance(error, RETRYABLE) and not isinstance(error, asyncpg.DataError)


class _Connection(PlainConnection):
    """A pooled connection that is not reset between uses: we only ever SET LOCAL, and a reset costs a round trip."""

    def get_reset_query(self) -> str:
        return ""


async def _prepare_connection(connection: PlainConnection) -> None:
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        encoder=lambda value: b"\x01" + msgspec.json.encode(value),
        decoder=lambda value: msgspec.json.decode(value[1:]),
        format="binary",
    )


async def _nothing_after_commit(_messages: Sequence[Message], _broadcasts: Sequence[Broadcast]) -> None:
    return


def _count_nothing(_ended: Mapping[End, int]) -> None:
    return


async def _open_pool(url: str, *, size: int, application: str) -> Pool:
    return await asyncpg.create_pool(
        url,
        min_size=1,
        max_size=size,
        connection_class=_Connection,
        init=_prepare_connection,
        server_settings=HOT_SETTINGS | {"application_name": application},
        timeout=10,
        command_timeout=30,
        max_inactive_connection_lifetime=60,
    )


class Database:
    """A pool of connections to one PostgreSQL database."""

    def __init__(self, pool: Pool, url: str, *, items_max: int = ITEMS_MAX) -> None:
        self._pool = pool
        self._items_max = items_max
        self.url = url
        self.after_commit: AfterCommit = _nothing_after_commit
        # Told of executions that a committed transaction ended; must not raise.
        self.on_ended: OnEnded = _count_nothing

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        size: int = 10,
        application: str = "attune",
        items_max: int = ITEMS_MAX,
        patience_seconds: float = 0,
    ) -> Self:
        """Open a pool; raises the reason if the database does not answer, or has not within the patience given."""
        give_up = monotonic() + patience_seconds
        failures = 0
        while True:
            try:
                pool = await _open_pool(url, size=size, application=application)
            except Exception as error:
                if monotonic() >= give_up or not may_work_later(error):
                    raise
                failures += 1
                pause = jittered_backoff(failures, first_seconds=0.1, ceiling_seconds=2.0, drawn=draw())
                await asyncio.sleep(pause)
            else:
                return cls(pool, url, items_max=min(items_max, ITEMS_MAX))

    async def close(self) -> None:
        """Close every connection; those that do not end in time are cut."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Tx]:
        """One transaction; commits at the end of the block, with its messages, and then wakes who waits for them."""
        messages: list[Message] = []
        broadcasts: list[Broadcast] = []
        began_at = monotonic()
        async with self._pool.acquire() as connection:
            tx = Tx.on(connection, began_at=began_at, items_max=self._items_max)
            commit = Commit.ROLLED_BACK
            try:
                async with connection.transaction():
                    yield tx
                    messages, broadcasts = await _write_announcements(tx)
                    commit = Commit.UNKNOWN
                await afailpoint("storage.commit.before_answer", unknown=asyncpg.ConnectionDoesNotExistError)
                commit = Commit.DONE
            finally:
                tx.end(commit)
        if tx.ended:
            self.on_ended(tx.ended)
        if (messages or broadcasts) and not await afailpoint("storage.commit.before_wake"):
            await self.after_commit(messages, broadcasts)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Tx]:
        """A connection for single statements that change nothing: no BEGIN, no COMMIT, two round trips less."""
        async with self._pool.acquire() as connection:
            yield Tx.on(connection)

    @asynccontextmanager
    async def snapshot(self, *, application: str) -> AsyncIterator[Tx]:
        """A transaction for many statements that must see the same moment, and may take their time."""
        connection = await self.dedicated(application=application)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                yield Tx.on(connection)
        finally:
            await connection.close()

    async def answers(self) -> bool:
        """Whether the database can be reached right now."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self.reading() as tx:
                await tx.execute("SELECT 1")
        except RETRYABLE:
            return False
        return True

    async def dedicated(self, *, application: str) -> PlainConnection:
        """A connection outside the pool: for listening, for heartbeats, for locks that outlive a transaction."""
        connection: PlainConnection = await asyncpg.connect(
            self.url,
            server_settings=HOT_SETTINGS | {"application_name": application},
            timeout=10,
        )
        try:
            await _prepare_connection(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection


async def _write_announcements(tx: Tx) -> tuple[list[Message], list[Broadcast]]:
    messages = await outbox.insert(tx, tx.announcements())
    broadcasts = await revisions.advance(tx, tx.broadcasts())
    return messages, broadcasts
