"""Waits for executions to end: one look at the database for everybody who waits."""

import asyncio
from typing import Final

from attune.runtime.clock import monotonic
from attune.storage.database import Database, may_work_later
from attune.storage.views import executions

WAITERS_MAX: Final = 10_000  # Beyond this nobody waits: the answer is "accepted", at once.
# Most actions people wait for end soon; those that do not are looked at less often.
QUICK_SECONDS: Final = 0.01
SLOW_SECONDS: Final = 0.1
QUICK_FOR_SECONDS: Final = 1.0


class Completions:
    """Everybody in this process who waits for an execution."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._count = 0
        self._asked = asyncio.Event()
        self._quick_until = 0.0
        self._closed = False

    async def wait(self, execution_id: int, seconds: float) -> None:
        """Return when the execution ended, when the time is over, or when the service stops. Holds no connection."""
        if self._closed or self._count >= WAITERS_MAX or seconds <= 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(execution_id, set()).add(future)
        self._count += 1
        self._quick_until = monotonic() + QUICK_FOR_SECONDS
        self._asked.set()
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            self._leave(execution_id, future)

    def close(self) -> None:
        """Send everybody home; they answer with what is known now."""
        self._closed = True
        for execution_id in list(self._waiting):
            self._tell(execution_id)

    async def watch(self) -> None:
        """Look for ends as long as anybody waits."""
        while True:
            await self._asked.wait()
            if not self._waiting:
                self._asked.clear()
                continue
            await self._look()
            await asyncio.sleep(QUICK_SECONDS if monotonic() < self._quick_until else SLOW_SECONDS)

    async def _look(self) -> None:
        try:
            async with self._database.reading() as tx:
                ended = await executions.find_ended(tx, list(self._waiting))
        except Exception as error:
            if not may_work_later(error):
                raise
            return
        for execution_id in ended:
            self._tell(execution_id)

    def _tell(self, execution_id: int) -> None:
        for future in self._waiting.get(execution_id, ()):
            if not future.done():
                future.set_result(None)

    def _leave(self, execution_id: int, future: asyncio.Future[None]) -> None:
        self._count -= 1
        waiters = self._waiting.get(execution_id, set())
        waiters.discard(future)
        if not waiters:
            self._waiting.pop(execution_id, None)
        future.cancel()
