"""Changes that every process wants to hear of: what was heard last, and who waits for the next.

A broadcast is state, not a message: only the newest revision of a kind of thing matters, so nothing queues up, and
what a transport loses is found by reading the revisions again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

import structlog

from attune.domain.messages import Broadcast
from attune.storage import revisions
from attune.storage.database import Database, may_work_later

# What a transport loses is heard this much later.
POLL_SECONDS = 5.0


class Listeners:
    """Everybody in this process who wants to hear of changes."""

    def __init__(self, database: Database, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._database = database
        self._poll_seconds = poll_seconds
        self._waiting: set[_Listener] = set()
        self._known: dict[str, int] = {}
        self._asked = asyncio.Event()

    def tell(self, broadcasts: Iterable[Broadcast]) -> None:
        """Pass on what is newer than what was heard before."""
        for broadcast in broadcasts:
            if broadcast.revision > self._known.get(broadcast.entity, -1):
                self._known[broadcast.entity] = broadcast.revision
                for listener in self._waiting:
                    listener.hear(broadcast)

    async def listen(self) -> AsyncIterator[Broadcast]:
        """Every kind of thing as it stands, then each change; changes that come faster than they are read merge."""
        listener = _Listener()
        self._waiting.add(listener)
        for entity, revision in self._known.items():
            listener.hear(Broadcast(entity=entity, revision=revision))
        self._asked.set()
        try:
            while True:
                yield await listener.next()
        finally:
            self._waiting.discard(listener)

    async def poll(self) -> None:
        """Read the revisions again and again, while anybody listens."""
        while True:
            await self._asked.wait()
            try:
                async with self._database.reading() as tx:
                    self.tell(await revisions.list_all(tx))
            except Exception as error:
                if not may_work_later(error):
                    raise
                structlog.get_logger().warning("broadcasts.unreadable", error=str(error))
            await asyncio.sleep(self._poll_seconds)


class _Listener:
    """What one listener has not read yet: at most one revision for each kind of thing."""

    def __init__(self) -> None:
        self._unread: dict[str, int] = {}
        self._any = asyncio.Event()

    def hear(self, broadcast: Broadcast) -> None:
        self._unread[broadcast.entity] = broadcast.revision
        self._any.set()

    async def next(self) -> Broadcast:
        await self._any.wait()
        entity = next(iter(self._unread))
        revision = self._unread.pop(entity)
        if not self._unread:
            self._any.clear()
        return Broadcast(entity=entity, revision=revision)
