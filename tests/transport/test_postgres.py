"""Waking consumers through the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from attune.domain.messages import MessageType
from attune.storage.database import Database
from attune.transport.postgres import PostgresOptions, PostgresTransport
from tests.transport.station import EVENTS, Station, end, eventually, leave_effect, station, wait_for_effects
from tests.witness.proxy import proxy_before

NEVER_SECONDS = 3600.0


@asynccontextmanager
async def deaf_to_polling(database_url: str) -> AsyncIterator[Station]:
    """A process that learns of messages by calls alone."""
    database = await Database.connect(database_url, size=3)
    transport = PostgresTransport(
        database, PostgresOptions(poll_active_seconds=NEVER_SECONDS, poll_idle_seconds=NEVER_SECONDS)
    )
    database.after_commit = transport.after_commit
    running = asyncio.create_task(transport.run())
    try:
        yield Station(database=database, transport=transport)
    finally:
        await end(running)
        await database.close()


async def wait_until_listening(database: Database) -> None:
    async def listening() -> bool:
        async with database.reading() as tx:
            return bool(
                await tx.fetch_value(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'attune listen'"
                    " AND datname = current_database() AND query LIKE 'LISTEN%'"
                )
            )

    await eventually(listening, what="somebody listens")


async def test_a_call_wakes_a_consumer_in_another_process(database_url: str, effect_table: None) -> None:
    async with (
        deaf_to_polling(database_url) as there,
        there.consuming(EVENTS, leave_effect),
        station(database_url, "") as here,
    ):
        await wait_until_listening(here.database)
        await here.announce([(1, 0)])
        assert await wait_for_effects(here.database, 1) == [1]


async def test_a_consumer_in_the_same_process_is_woken_without_a_call(database_url: str, effect_table: None) -> None:
    heard: list[str] = []
    listener = await asyncpg.connect(database_url)
    try:
        await listener.add_listener("attune_wake", lambda *call: heard.append(str(call[-1])))
        async with deaf_to_polling(database_url) as here:
            async with here.consuming(EVENTS, leave_effect):
                await here.announce([(1, 0)])
                assert await wait_for_effects(here.database, 1) == [1]
            await here.announce([(2, 0)], topic=MessageType.LINE_CHANGED, type_=MessageType.LINE_CHANGED)

            async def called() -> bool:
                return bool(heard)

            await eventually(called, what="a call for the topic nobody consumes here")
        assert heard == ["line.changed"]
    finally:
        await listener.close()


async def test_many_commits_need_few_calls(database_url: str, effect_table: None) -> None:
    heard: list[str] = []
    listener = await asyncpg.connect(database_url)
    try:
        await listener.add_listener("attune_wake", lambda *call: heard.append(str(call[-1])))
        async with deaf_to_polling(database_url) as here:
            await asyncio.gather(*(here.announce([(number, 0)]) for number in range(300)))
            await here.announce([(0, 0)], topic=MessageType.LINE_CHANGED, type_=MessageType.LINE_CHANGED)

            async def last_call() -> bool:
                return any("line.changed" in payload for payload in heard)

            await eventually(last_call, what="the last call")
        assert 1 <= len(heard) < 300
    finally:
        await listener.close()


async def test_listening_goes_on_over_a_new_connection(database_url: str, effect_table: None) -> None:
    async with (
        proxy_before(database_url) as proxy,
        deaf_to_polling(proxy.redirect(database_url)) as there,
        station(database_url, "") as here,
        there.consuming(EVENTS, leave_effect),
    ):
        await wait_until_listening(here.database)
        proxy.cut()

        async def nobody_listens() -> bool:
            async with here.database.reading() as tx:
                return not await tx.fetch_value(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'attune listen'"
                    " AND datname = current_database() AND client_addr IS NOT NULL AND query LIKE 'LISTEN%'"
                )

        await eventually(nobody_listens, what="the cut connection is gone")
        await here.announce([(1, 0)])
        assert await wait_for_effects(here.database, 1) == [1]
