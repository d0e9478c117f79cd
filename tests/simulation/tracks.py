"""Connections whose transactions a test holds, lets go or kills at will."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

from attune.storage.database import Database
from attune.storage.tx import PlainConnection, Tx
from tests.simulation.deeds import Deed, Scene

# Nothing here waits for long, unless nobody will ever let it go.
SETTLE_SECONDS = 10


@dataclass(kw_only=True)
class Transaction:
    """A deed under way: prepared, then done, then committed, each when it is let."""

    deed: Deed
    may_do: asyncio.Event = field(default_factory=asyncio.Event)
    is_prepared: asyncio.Event = field(default_factory=asyncio.Event)
    may_commit: asyncio.Event = field(default_factory=asyncio.Event)
    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Any = None
    task: asyncio.Task[None] | None = None

    async def run(self, connection: PlainConnection, scene: Scene) -> None:
        async with connection.transaction():
            tx = Tx.on(connection)
            await self.deed.prepare(tx, scene)
            self.is_prepared.set()
            await self.may_do.wait()
            self.outcome = await self.deed.do(tx, scene)
            self.is_done.set()
            await self.may_commit.wait()


@dataclass(kw_only=True)
class Track:
    """One connection, and the transaction that is open on it."""

    database: Database
    connection: PlainConnection
    current: Transaction | None = None

    @classmethod
    async def open(cls, database: Database) -> Self:
        return cls(database=database, connection=await _connect(database))

    def begin(self, deed: Deed, scene: Scene, *, held_early: bool) -> None:
        self.current = Transaction(deed=deed)
        if not held_early:
            self.current.may_do.set()
        self.current.task = asyncio.create_task(self.current.run(self.connection, scene))

    @property
    def can_commit(self) -> bool:
        return self.current is not None and self.current.is_done.is_set()

    @property
    def can_go_on(self) -> bool:
        return self.current is not None and self.current.is_prepared.is_set() and not self.current.may_do.is_set()

    async def settle(self, monitor: PlainConnection) -> None:
        """Wait until the transaction waits: for the test, or for a lock of another."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while (run := self.current) is not None and not (run.is_done.is_set() or self.can_go_on):
                if run.task is not None and run.task.done():
                    run.task.result()
                pid = self.connection.get_server_pid()
                if await monitor.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid):
                    return

    async def commit(self) -> Transaction:
        """Let it commit; returns what was committed."""
        run, self.current = self.current, None
        assert run is not None
        assert run.task is not None
        run.may_commit.set()
        await run.task
        return run

    async def kill(self, monitor: PlainConnection) -> None:
        """End the server's side in the middle of the transaction."""
        run, self.current = self.current, None
        assert run is not None
        assert run.task is not None
        await monitor.fetchval("SELECT pg_terminate_backend($1, 5000)", self.connection.get_server_pid())
        run.may_do.set()
        run.may_commit.set()
        await asyncio.gather(run.task, return_exceptions=True)
        self.connection.terminate()
        self.connection = await _connect(self.database)

    async def close(self) -> None:
        if self.current is not None and self.current.task is not None:
            self.current.task.cancel()
            await asyncio.gather(self.current.task, return_exceptions=True)
        self.connection.terminate()


async def _connect(database: Database) -> PlainConnection:
    connection = await database.dedicated(application="attune-simulation")
    # The test is slower than any executor may be.
    await connection.execute(
        "SET lock_timeout = '20s'; SET idle_in_transaction_session_timeout = 0; SET deadlock_timeout = '200ms'"
    )
    return connection
