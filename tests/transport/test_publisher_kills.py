"""Killing the publisher at random moments: the outbox loses nothing, publishing after the commit does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from attune.storage.database import Database
from tests.transport.children import child, wait_until_it_says
from tests.transport.station import EVENTS, count, eventually, leave_effect, station

KILLS = 5
pytestmark = [pytest.mark.rabbitmq, pytest.mark.slow]


@pytest.fixture
async def change_table(database: Database, effect_table: None) -> None:
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE change (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)")


async def kill_publishers(role: str, database: Database, database_url: str, broker_url: str) -> None:
    """Let publishers work for a moment that a fixed seed chooses, and kill them."""
    dice = random.Random(7)
    for _ in range(KILLS):
        async with child(role, database_url, broker_url) as process:
            await wait_until_it_says(process, "ready")
            enough = await count(database, "change") + dice.randint(20, 200)

            async def busy(enough: int = enough) -> bool:
                return await count(database, "change") >= enough

            await eventually(busy, what=f"{enough} changes")


@asynccontextmanager
async def collecting(database_url: str, broker_url: str) -> AsyncIterator[None]:
    """Another process that handles everything and relays what is left in the outbox."""
    async with station(database_url, broker_url) as here, here.consuming(EVENTS, leave_effect):
        yield


async def lost_changes(database: Database) -> int:
    async with database.reading() as tx:
        lost: int = await tx.fetch_value(
            "SELECT count(*) FROM change c WHERE NOT EXISTS (SELECT FROM effect e WHERE e.item = c.id)"
        )
        return lost


async def test_the_outbox_loses_nothing(
    database: Database, database_url: str, rabbitmq_url: str, change_table: None
) -> None:
    async with collecting(database_url, rabbitmq_url):
        await kill_publishers("outbox", database, database_url, rabbitmq_url)

        async def nothing_lost() -> bool:
            return await lost_changes(database) == 0 and await count(database, "outbox") == 0

        await eventually(nothing_lost, what="every change was handled", seconds=30)
        assert await count(database, "change") >= KILLS * 20


async def test_publishing_after_the_commit_loses_messages(
    database: Database, database_url: str, rabbitmq_url: str, change_table: None
) -> None:
    async with collecting(database_url, rabbitmq_url):
        await kill_publishers("after-commit", database, database_url, rabbitmq_url)

        async def settled() -> bool:
            before = await count(database, "effect")
            await asyncio.sleep(0.5)
            return await count(database, "effect") == before

        await eventually(settled, what="nothing more arrives")
        # Each publisher was, with few exceptions, between its commit and its confirmation when it died.
        assert await lost_changes(database) > 0
