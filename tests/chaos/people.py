"""What people do to a platform while it is harmed: install, drain, pause, replay, upgrade; all is undone at the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import asyncpg
import httpx2

from tests.chaos.stage import WHEELS, Stage
from tests.chaos.witnesses import LEDGER
from tests.chaos.workload import write_extra

DEED_SECONDS = (0.5, 2.5)
HOLD_SECONDS = 2.0
DATABASE_SECONDS = 5.0
# So many workers must be left to do the work.
LEFT_MIN = 2
# A message of a type that only a newer version knows, as some are on their way while versions change.
STRANGER = "chaos.stranger"
# At one more delivery a message of an unknown type is parked.
LAST_DELIVERY = 9
NOT_THERE = (httpx2.HTTPError, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


@dataclass(slots=True, kw_only=True)
class People:
    """Somebody who has the right to everything, and is not always answered."""

    stage: Stage
    client: httpx2.AsyncClient
    dice: random.Random
    over: asyncio.Event
    done: Counter[str] = field(default_factory=Counter)

    async def act(self) -> None:
        """One deed after another until it is over; then nothing is left paused or closed."""
        deeds = (self._install, self._drain, self._pause, self._replay, self._send_stranger, self.tend)
        while not self.over.is_set():
            deed = self.dice.choice(deeds)
            with suppress(*NOT_THERE):
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

    async def tend(self) -> None:
        """Release actions that lost several workers in a row; end the patience with messages nobody knows."""
        held: list[str] = []
        with suppress(*NOT_THERE):
            connection = await asyncpg.connect(self.stage.postgres.url, timeout=DATABASE_SECONDS)
            try:
                rows = await connection.fetch("SELECT ref FROM attune.action WHERE quarantined_at IS NOT NULL")
                held = [row["ref"] for row in rows]
                await connection.execute(
                    "UPDATE attune.outbox SET deliveries = $2, not_before = now() WHERE type = $1 AND deliveries > 0",
                    STRANGER,
                    LAST_DELIVERY,
                )
            finally:
                connection.terminate()
        for ref in held:
            with suppress(httpx2.HTTPError):
                await self.client.post(f"/api/v1/actions/{ref}/release")

    async def install(self, number: int) -> None:
        """A pack that changes each time."""
        folder = self.stage.folder
        pack = write_extra(folder / "packs", number, folder / LEDGER, folder / WHEELS)
        answer = await self.client.post("/api/v1/packs:install", json={"path": str(pack)})
        answer.raise_for_status()

    async def _install(self) -> None:
        await self.install(1 + self.done["install"])

    async def _send_stranger(self) -> None:
        connection = await asyncpg.connect(self.stage.postgres.url, timeout=DATABASE_SECONDS)
        try:
            await connection.execute(
                "INSERT INTO attune.outbox (topic, type, items, created) "
                "VALUES ('execution.requested', $1, '[[1, 0]]', now() - interval '1 second')",
                STRANGER,
            )
        finally:
            connection.terminate()

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
