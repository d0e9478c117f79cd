"""What people do to a platform while it is harmed: install, drain, pause, replay; all of it is undone at the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

DEED_SECONDS = (1.0, 5.0)
HOLD_SECONDS = 2.0
# So many workers must be left to do the work.
LEFT_MIN = 2


@dataclass(slots=True, kw_only=True)
class People:
    """Somebody who has the right to everything, and is not always answered."""

    client: httpx2.AsyncClient
    folder: Path
    dice: random.Random
    over: asyncio.Event
    done: Counter[str] = field(default_factory=Counter)

    async def act(self) -> None:
        """One deed after another until it is over; then nothing is left paused or closed."""
        while not self.over.is_set():
            deed = self.dice.choice((self._install, self._drain, self._pause, self._replay))
            with suppress(httpx2.HTTPError):
                await deed()
                self.done[deed.__name__.strip("_")] += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(self.dice.uniform(*DEED_SECONDS)):
                    await self.over.wait()

    async def undo(self) -> None:
        """Let everybody work again; asked until it is answered."""
        for worker in await self._list("/api/v1/workers"):
            if worker["cordoned"]:
                await self._until_done(f"/api/v1/workers/{worker['id']}/uncordon")
        for line in await self._list("/api/v1/lines"):
            if line["paused"]:
                await self._until_done(f"/api/v1/lines/{line['id']}/resume")

    async def _install(self) -> None:
        """A pack that changes each time."""
        number = self.done["install"]
        folder = self.folder / f"extra-{number}"
        (folder / "actions").mkdir(parents=True, exist_ok=True)
        (folder / "pack.yaml").write_text(f"ref: extra\nversion: 1.0.{number}\n")
        (folder / "actions" / "work.yaml").write_text(f"ref: extra.work\nrunner: shell\ncommand: echo {number}\n")
        await self.client.post("/api/v1/packs:install", json={"path": str(folder)})

    async def _drain(self) -> None:
        workers = [each for each in await self._list("/api/v1/workers") if each["status"] == "active"]
        if len([each for each in workers if not each["cordoned"]]) > LEFT_MIN:
            worker = self.dice.choice(workers)["id"]
            await self.client.post(f"/api/v1/workers/{worker}/drain")
            await asyncio.sleep(self.dice.uniform(0, HOLD_SECONDS))
            await self.client.post(f"/api/v1/workers/{worker}/uncordon")

    async def _pause(self) -> None:
        lines = await self._list("/api/v1/lines")
        if lines:
            line = self.dice.choice(lines)["id"]
            await self.client.post(f"/api/v1/lines/{line}/pause")
            await asyncio.sleep(self.dice.uniform(0, HOLD_SECONDS))
            await self.client.post(f"/api/v1/lines/{line}/resume")

    async def _replay(self) -> None:
        await self.client.post("/api/v1/dead-letters:replay")

    async def _list(self, path: str) -> list[Mapping[str, object]]:
        answer = await self.client.get(path)
        if answer.status_code != httpx2.codes.OK:
            return []
        items: list[Mapping[str, object]] = answer.json()["items"]
        return items

    async def _until_done(self, path: str) -> None:
        while True:
            with suppress(httpx2.HTTPError):
                answer = await self.client.post(path)
                if answer.status_code < httpx2.codes.INTERNAL_SERVER_ERROR:
                    return
            await asyncio.sleep(HOLD_SECONDS / 10)
