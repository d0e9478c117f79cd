"""Keeps a worker whose disk is full from being given work, until there is room again."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from attune.operations.workers.cordon_itself import cordon_itself, uncordon_itself
from attune.storage.database import Database, may_work_later

LOOK_SECONDS: Final = 5.0
MEBIBYTE: Final = 1024 * 1024


class Disk:
    """The disk that actions write to, as this worker last saw it."""

    def __init__(
        self, database: Database, instance: UUID, *, place: Path, free_mb_min: int, doubted: asyncio.Event
    ) -> None:
        self._database = database
        self._instance = instance
        self._place = place
        self._free_mb_min = free_mb_min
        self._full = False
        self._doubted = doubted
        self._log = structlog.get_logger()

    async def watch(self, give_back: Callable[[], object]) -> None:
        """For ever; `give_back` is called when the worker has taken itself out."""
        while True:
            try:
                await self.look(give_back)
            except Exception as error:
                if not may_work_later(error):
                    raise
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._doubted.wait()
            except TimeoutError:
                pass
            self._doubted.clear()

    async def look(self, give_back: Callable[[], object]) -> None:
        """Cordon this worker or let it back in, if its disk says so."""
        free = _free_bytes(self._place)
        full = free < self._free_mb_min * MEBIBYTE
        if full == self._full:
            return
        async with self._database.transaction() as tx:
            if full:
                reason = f"less than {self._free_mb_min} MiB are free below {self._place}"
                await cordon_itself(tx, instance=self._instance, reason=reason)
            else:
                await uncordon_itself(tx, instance=self._instance)
        self._full = full
        if full:
            self._log.error("worker.disk_full", place=str(self._place), free_mb=free // MEBIBYTE)
            give_back()
        else:
            self._log.info("worker.disk_has_room", place=str(self._place), free_mb=free // MEBIBYTE)


def _free_bytes(place: Path) -> int:
    """What is left for everybody but root; nothing where no further file can be made."""
    found = os.statvfs(place)
    if found.f_files and not found.f_favail:
        return 0
    return found.f_bavail * found.f_frsize
