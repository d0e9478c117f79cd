"""Tells whoever follows an execution that there is more to read of it: hints, lost without harm."""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from attune.storage.database import Database
from attune.storage.notices import SideConnection
from attune.storage.output.execution_logs import CHANNEL

# How long a call waits for others; people do not notice it.
GATHER_SECONDS: Final = 0.05
# A payload has at most 7,999 bytes, an id at most 19 digits.
IDS_PER_PAYLOAD: Final = 350


class Calls:
    """Calls of one worker, on a connection of their own and few of them: no report ever waits for one."""

    def __init__(self, database: Database) -> None:
        self._side = SideConnection(database, application="attune worker calls")
        self._ids: set[int] = set()
        self._any = asyncio.Event()

    def tell(self, ids: Iterable[int]) -> None:
        """Something of these was written."""
        self._ids.update(ids)
        if self._ids:
            self._any.set()

    async def run(self) -> None:
        """Call until cancelled."""
        try:
            while True:
                await self._any.wait()
                await asyncio.sleep(GATHER_SECONDS)
                self._any.clear()
                ids, self._ids = sorted(self._ids), set()
                await self._call(ids)
        finally:
            self._side.close()

    async def _call(self, ids: list[int]) -> None:
        parts = [ids[start : start + IDS_PER_PAYLOAD] for start in range(0, len(ids), IDS_PER_PAYLOAD)]
        try:
            await self._side.notify(CHANNEL, [" ".join(map(str, part)) for part in parts])
        except Exception as error:  # noqa: BLE001  a hint is not worth a worker; followers also look by themselves
            structlog.get_logger().warning("call.failed", error=str(error))
