"""Dispatches that no worker took in time go to the dead letters.

Run by whoever consumes the dead letters: on PostgreSQL this is what a queue's TTL is on a broker; on a broker it
moves those dispatches that could not even be sent, because the worker's queue or the broker was not there.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from attune.domain.messages import Message
from attune.runtime.failpoints import afailpoint
from attune.storage import outbox
from attune.storage.database import Database

EXPIRE_BATCH_MAX = 500
# A dispatch expires at most a tenth of its TTL late, between these limits.
INTERVAL_SECONDS_MIN = 0.1
INTERVAL_SECONDS_MAX = 5.0


async def expire_dispatches(
    database: Database, *, ttl_seconds: float, is_mine: Callable[[], bool], moved: Callable[[Sequence[Message]], None]
) -> None:
    """Move what has expired, for as long as this process is the one to do it; until cancelled."""
    interval = min(max(ttl_seconds / 10, INTERVAL_SECONDS_MIN), INTERVAL_SECONDS_MAX)
    while True:
        await asyncio.sleep(interval)
        if not is_mine():
            continue
        async with database.transaction() as tx:
            expired = await outbox.expire_dispatches(tx, ttl_seconds=ttl_seconds, limit=EXPIRE_BATCH_MAX)
        if expired:
            await afailpoint("dlq.expired.before_wake")
            structlog.get_logger().warning("dispatches.expired", messages=len(expired), ttl_seconds=ttl_seconds)
            moved(expired)
