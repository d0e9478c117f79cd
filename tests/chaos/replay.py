"""Records every message of a run and applies them all again, twice and shuffled, when the run is over.

Messages are hints, and handling one twice equals handling it once: afterwards every row must be as it was.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

import aio_pika
import asyncpg

from attune.transport.topology import EXECUTOR_QUEUES, dead_letter_queue, worker_queues
from tests.witness.waiting import until

TIMES = 2
# What is handled while it still arrives, not what waited so long that it is suspected and handled alone.
PORTION = 1000
DRAIN_SECONDS = 240.0
# A row may be on its way back: a worker that found no slot for a stale dispatch marks itself full for a moment.
SETTLE_SECONDS = 30.0
# The broker does not count what a consumer holds unacknowledged; after this long, nothing is.
STILL_SECONDS = 2.0

# Tables of which no row says what became of an execution, with the reason why they change by themselves.
LEFT_OUT: Mapping[str, str] = {
    "outbox": "it is the messages themselves",
    "counter": "processes count what they handle, the repeated messages too",
    "alert": "alerts begin and end as time passes",
    "alert_sample": "every look of the alerts is kept for the next ones",
    "scaling_change": "how many workers are wanted follows the clock",
    "queue_stats_history": "a row for every minute",
    "line_remainder": "what a line had counted when the sweep removed it for being idle",
    "line_checkpoint": "the mark of a line that the sweep removed for being idle",
    "history_checkpoint": "up to where somebody asked `attune check` to look",
}
# The pulse of processes, and what a sweep forgets when it is of no use any more, in rows that are compared otherwise.
PULSE: Mapping[str, tuple[str, ...]] = {
    "execution": ("worker_by",),
    "worker": ("last_heartbeat", "health", "pinged_at", "awaited_since", "ponged_at", "updated"),
    "executor_replica": ("last_heartbeat",),
}
# Rows may vanish here as time passes, but none may appear or change.
VANISHING = frozenset({"line"})

# Types that this version does not know, and therefore parks each time.
UNKNOWN = ("chaos.stranger",)

Rows = dict[str, Counter[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How many messages were applied again, how many no living worker could get, and what that changed: nothing."""

    messages: int
    skipped: int
    changed: Mapping[str, int] = field(default_factory=dict)

    @property
    def violations(self) -> list[str]:
        """As a judge of a run wants it."""
        return [f"messages applied again changed {count} rows of {table}" for table, count in self.changed.items()]


async def record(database: asyncpg.Pool) -> None:
    """From now on, keep a copy of every message that is announced, or moved to the dead letters."""
    await database.execute(
        """
        CREATE SCHEMA IF NOT EXISTS witness;
        CREATE TABLE IF NOT EXISTS witness.message (
            n bigint GENERATED ALWAYS AS IDENTITY, topic text, type text, items jsonb, deaths jsonb);
        CREATE OR REPLACE FUNCTION witness.keep() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO witness.message (topic, type, items, deaths)
            VALUES (NEW.topic, NEW.type, NEW.items, NEW.deaths);
            RETURN NULL;
        END $$;
        CREATE OR REPLACE TRIGGER witness AFTER INSERT OR UPDATE OF topic ON attune.outbox
            FOR EACH ROW EXECUTE FUNCTION witness.keep();
        """
    )


async def replay(database: asyncpg.Pool, dice: random.Random, *, broker_url: str | None = None) -> Replayed:
    """Apply what was recorded again, twice and shuffled; the run must be over, and its services still there."""
    await database.execute("DROP TRIGGER IF EXISTS witness ON attune.outbox")
    await until(lambda: _is_over(database), seconds=DRAIN_SECONDS)
    numbers, skipped = await _list_deliverable(database)
    order = numbers * TIMES
    dice.shuffle(order)
    async with _depth(database, broker_url) as depth:
        await _look_at_lines(database)
        await _until_still(lambda: _is_carried(database, 0, depth))
        before = await read_rows(database)
        last = int(await database.fetchval("SELECT COALESCE(max(id), 0) FROM attune.outbox"))
        for start in range(0, len(order), PORTION):
            await _send(database, order[start : start + PORTION])
            await until(lambda: _is_carried(database, last, depth), seconds=DRAIN_SECONDS)
        await _until_still(lambda: _is_carried(database, last, depth))
    return Replayed(messages=len(order), skipped=skipped, changed=await _settle(database, before))


async def read_rows(database: asyncpg.Pool) -> Rows:
    """How often each row is there, by its digest, for every table that is compared."""
    tables = await database.fetch(
        """
        SELECT c.relname AS name FROM pg_class c
         WHERE c.relnamespace = 'attune'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
           AND c.relname <> ALL($1)
        """,
        list(LEFT_OUT),
    )
    rows: Rows = {}
    for name in sorted(row["name"] for row in tables):
        statement = f'SELECT md5((to_jsonb(t) - $1::text[])::text) AS digest FROM attune."{name}" t'  # noqa: S608  names of our own schema
        found = await database.fetch(statement, list(PULSE.get(name, ())))
        rows[name] = Counter(row["digest"] for row in found)
    return rows


def compare(before: Rows, after: Rows) -> dict[str, int]:
    """How many rows appeared, changed or vanished, by table."""
    changed = {}
    for table, rows in after.items():
        gone = 0 if table in VANISHING else (before[table] - rows).total()
        if count := max((rows - before[table]).total(), gone):
            changed[table] = count
    return changed


async def _settle(database: asyncpg.Pool, before: Rows) -> dict[str, int]:
    """What is still different when everything had the time to come to rest."""
    changed: dict[str, int] = {}

    async def unchanged() -> bool:
        nonlocal changed
        changed = compare(before, await read_rows(database))
        return not changed

    try:
        await until(unchanged, seconds=SETTLE_SECONDS)
    except TimeoutError:
        return changed
    return {}


async def _look_at_lines(database: asyncpg.Pool) -> None:
    """A line copies its policy's limit when it is next looked at; that may be due since before the run was over."""
    await database.execute(
        """
        INSERT INTO attune.outbox (topic, type, items)
        SELECT 'line.changed', 'line.changed', jsonb_build_array(jsonb_build_array(id, 0)) FROM attune.line
        """
    )


async def _is_over(database: asyncpg.Pool) -> bool:
    return bool(
        await database.fetchval(
            """
            SELECT NOT EXISTS (SELECT 1 FROM attune.execution WHERE ended_at IS NULL)
               AND NOT EXISTS (SELECT 1 FROM attune.line_entry)
               AND NOT EXISTS (SELECT 1 FROM attune.outbox WHERE type <> 'worker.pinged')
            """
        )
    )


async def _list_deliverable(database: asyncpg.Pool) -> tuple[list[int], int]:
    """What was recorded, in order, without what nobody would take: messages to workers that are no more."""
    rows = await database.fetch(
        """
        SELECT m.n, w.id IS NOT NULL OR m.topic NOT LIKE '%.worker.%' AS taken
          FROM witness.message m
          LEFT JOIN attune.worker w ON m.topic LIKE '%.worker.' || w.id AND w.status IN ('active', 'unresponsive')
         WHERE m.type <> ALL($1)
         ORDER BY m.n
        """,
        list(UNKNOWN),
    )
    taken = [int(row["n"]) for row in rows if row["taken"]]
    return taken, len(rows) - len(taken)


async def _send(database: asyncpg.Pool, order: list[int]) -> None:
    """As if they had been announced a moment ago by a process that then died; a relay would take them over."""
    await database.execute(
        """
        INSERT INTO attune.outbox (topic, type, items, deaths, created, not_before)
        SELECT m.topic, m.type, m.items, m.deaths, now() - interval '1 second', now()
          FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (n, place)
          JOIN witness.message m ON m.n = wanted.n
         ORDER BY wanted.place
        """,
        order,
    )


async def _is_carried(database: asyncpg.Pool, after: int, depth: Callable[[], Awaitable[int]]) -> bool:
    left = await database.fetchval(
        "SELECT count(*) FROM attune.outbox WHERE id > $1 AND type <> 'worker.pinged'", after
    )
    return not left and not await depth()


async def _until_still(condition: Callable[[], Awaitable[bool]]) -> None:
    """Until it has held for a while without a break."""
    since: float | None = None

    async def still() -> bool:
        nonlocal since
        since = (since or monotonic()) if await condition() else None
        return since is not None and monotonic() - since > STILL_SECONDS

    await until(still, seconds=DRAIN_SECONDS)


@asynccontextmanager
async def _depth(database: asyncpg.Pool, broker_url: str | None) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Asks how many messages wait in the broker; always none where there is no broker."""
    if broker_url is None:

        async def nothing() -> int:
            return 0

        yield nothing
        return
    workers = await database.fetch("SELECT id FROM attune.worker WHERE status IN ('active', 'unresponsive')")
    queues = [*EXECUTOR_QUEUES, dead_letter_queue(ttl_ms=1)]
    queues += [queue for row in workers for queue in worker_queues(row["id"], ttl_ms=1)]
    async with await aio_pika.connect(broker_url) as connection, connection.channel() as channel:

        async def ask() -> int:
            found = [await channel.declare_queue(queue.name, passive=True) for queue in queues]
            return sum(queue.declaration_result.message_count or 0 for queue in found)

        yield ask
