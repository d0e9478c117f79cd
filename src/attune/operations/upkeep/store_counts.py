"""Adds what a process counted to what all processes counted together, so that one scrape tells it all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import structlog

from attune.runtime.counts import Count, Unstored
from attune.runtime.failpoints import afailpoint
from attune.runtime.supervise import Restart, Tasks
from attune.storage.database import Database, may_work_later
from attune.storage.statistics import counters
from attune.storage.tx import Commit

# A process that is killed loses at most what it counted in this time.
STORE_SECONDS = 5.0


@asynccontextmanager
async def counting(database: Database, read: Callable[[], Iterable[Count]], tasks: Tasks) -> AsyncIterator[None]:
    """Store what a service counts now and then, and the last of it when the service has ended."""
    unstored = Unstored(read)
    storing = tasks.start("counts", partial(_store_for_ever, database, unstored), restart=Restart())
    yield
    storing.cancel()
    await asyncio.wait([storing])
    await _try_to_store(database, unstored)


async def store_counts(database: Database, unstored: Unstored) -> None:
    """Store what grew; if nothing did, the database is not asked at all."""
    counts = unstored.take()
    if not counts:
        return
    async with database.transaction() as tx:
        tx.at_end(partial(_settle, unstored, counts))
        await counters.add(tx, counts)
        await afailpoint("counts.before_commit")


def _settle(unstored: Unstored, counts: Sequence[Count], commit: Commit) -> None:
    # A commit without an answer counts as done: a number that is too low for once is better than one too high for ever.
    if commit is not Commit.ROLLED_BACK:
        unstored.note_stored(counts)


async def _store_for_ever(database: Database, unstored: Unstored) -> None:
    while True:
        await asyncio.sleep(STORE_SECONDS)
        await _try_to_store(database, unstored)


async def _try_to_store(database: Database, unstored: Unstored) -> None:
    try:
        await store_counts(database, unstored)
    except Exception as error:
        if not may_work_later(error):
            raise
        structlog.get_logger().warning("counts.put_off", error=str(error))
