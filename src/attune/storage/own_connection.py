"""A connection of its own for something that must not wait for the pool, replaced as soon as it does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attune.runtime.clock import monotonic
from attune.storage.database import Database
from attune.storage.tx import PlainConnection, Tx


class OwnConnection:
    """Used by one task at a time."""

    def __init__(self, database: Database, *, application: str) -> None:
        self._database = database
        self._application = application
        self._connection: PlainConnection | None = None

    @asynccontextmanager
    async def transaction(self, *, timeout_seconds: float) -> AsyncIterator[Tx]:
        """One transaction that announces nothing; raises TimeoutError if all of it takes longer."""
        began_at = monotonic()
        try:
            async with asyncio.timeout(timeout_seconds):
                connection = await self._connected()
                transaction = connection.transaction()
                await transaction.start()
                tx = Tx.on(connection, began_at=began_at)
                yield tx
                if tx.announcements():
                    raise RuntimeError("a transaction on a connection of its own cannot announce anything")
                await transaction.commit()
        except BaseException:
            # Asking a connection that may be dead to roll back could take for ever; cutting it is as good.
            self.cut()
            raise

    def cut(self) -> None:
        """Drop the connection without a word."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _connected(self) -> PlainConnection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._database.dedicated(application=self._application)
        return self._connection
