"""Everybody in this process who follows what an execution prints: woken by calls, and by its end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from attune.domain.errors import Unavailable
from attune.storage import notices
from attune.storage.database import Database, may_work_later
from attune.storage.output.execution_logs import CHANNEL
from attune.storage.views import executions

# Beyond this many somebody else has to leave first.
FOLLOWERS_MAX: Final = 1000
# Workers call when they wrote something. Ends that nobody called out, and lost calls, are looked for this often,
# with one question for all followers.
LOOK_SECONDS: Final = 1.0


class Following:
    """Who follows which execution."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: dict[int, set[asyncio.Event]] = {}
        self._count = 0
        self._asked = asyncio.Event()
        self.closed = False

    @contextmanager
    def follow(self, execution_id: int) -> Iterator[asyncio.Event]:
        """An event that is set whenever there may be more to read."""
        if self._count >= FOLLOWERS_MAX:
            raise Unavailable("too many are following executions already; try again later", code="overloaded")
        event = asyncio.Event()
        self._followers.setdefault(execution_id, set()).add(event)
        self._count += 1
        self._asked.set()
        try:
            yield event
        finally:
            self._count -= 1
            self._followers[execution_id].discard(event)
            if not self._followers[execution_id]:
                del self._followers[execution_id]

    def close(self) -> None:
        """Send everybody home; they can go on where they were with another process."""
        self.closed = True
        self._wake(list(self._followers))

    async def listen(self) -> None:
        """Hear the calls of workers, for ever; while the database is away there is nothing to hear."""
        while True:
            try:
                await notices.listen(self._database, (CHANNEL,), self._hear, application="attune api calls")
            except Exception as error:
                if not may_work_later(error):
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def watch(self) -> None:
        """Look for ends as long as anybody follows."""
        while True:
            await self._asked.wait()
            if not self._followers:
                self._asked.clear()
                continue
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        try:
            async with self._database.reading() as tx:
                self._wake(await executions.find_ended(tx, list(self._followers)))
        except Exception as error:
            if not may_work_later(error):
                raise

    def _hear(self, _channel: str, payload: str) -> None:
        """Without a payload anything may have been missed."""
        self._wake([int(word) for word in payload.split()] or list(self._followers))

    def _wake(self, ids: list[int]) -> None:
        for execution_id in ids:
            for event in self._followers.get(execution_id, ()):
                event.set()
