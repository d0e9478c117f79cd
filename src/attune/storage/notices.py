"""PostgreSQL's own wake-up calls: hints to look at some rows, lost without harm."""

import asyncio
from collections.abc import Callable, Sequence

from attune.storage.database import Database
from attune.storage.tx import Tx

# A listening connection that is silently dead is noticed after this long.
KEEPALIVE_SECONDS = 10.0
KEEPALIVE_TIMEOUT_SECONDS = 5.0


async def notify(tx: Tx, channel: str, payloads: Sequence[str]) -> None:
    """Call everybody who listens; PostgreSQL takes at most 7,999 bytes per payload."""
    await tx.execute("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS p (payload)", channel, payloads)


async def listen(
    database: Database, channels: Sequence[str], hear: Callable[[str, str], None], *, application: str
) -> None:
    """Hear every call on these channels until the connection is lost, which raises."""
    connection = await database.dedicated(application=application)
    lost = asyncio.Event()
    try:
        connection.add_termination_listener(lambda _: lost.set())
        for channel in channels:
            await connection.add_listener(channel, lambda _, __, name, payload: hear(name, str(payload)))
        hear("", "")  # What was called before we listened is looked for once.
        while not lost.is_set():
            await _stay_awake(Tx.on(connection), lost)
        raise ConnectionError("the listening connection was lost")
    finally:
        connection.terminate()


async def _stay_awake(tx: Tx, lost: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(lost.wait(), KEEPALIVE_SECONDS)
    except TimeoutError:
        async with asyncio.timeout(KEEPALIVE_TIMEOUT_SECONDS):
            await tx.execute("SELECT 1")


class SideConnection:
    """A connection of its own for calls, so that no pooled transaction ever waits for them."""

    def __init__(self, database: Database, *, application: str) -> None:
        self._database = database
        self._application = application
        self._tx: Tx | None = None

    async def notify(self, channel: str, payloads: Sequence[str]) -> None:
        """Call, over a new connection if the last one failed."""
        if self._tx is None:
            self._tx = Tx.on(await self._database.dedicated(application=self._application))
        try:
            async with asyncio.timeout(KEEPALIVE_TIMEOUT_SECONDS):
                await notify(self._tx, channel, payloads)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection at once; nothing on it is worth waiting for."""
        if self._tx is not None:
            connection = self._tx.connection
            self._tx = None
            connection.terminate()
