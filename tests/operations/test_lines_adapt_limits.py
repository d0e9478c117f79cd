"""Limits that move by themselves, with real transactions: what ends under a limit moves it, and the log says why."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attune.domain.adaptive import ended_needed
from attune.domain.definitions import RetryPolicy
from attune.domain.retry import Ending
from attune.domain.why import explain
from attune.operations.lines.adapt_limits import adapt_limits
from attune.storage.database import Database
from attune.storage.views import lines, why
from attune.storage.views.lines import Admission, LineView
from tests.witness.arrange import TestWorker, make_action, make_worker, request
from tests.witness.lines import FAILED, SUCCESS, admit, end, make_policy, nothing_is_broken, release

# Far less than a transaction takes, so that what is written afterwards is not later than what follows it.
FAST_SECONDS = 0.000_1


async def arrange(database: Database, **adaptive: object) -> TestWorker:
    await make_action(database)
    worker = await make_worker(database, capacity=1000, heartbeat_interval=1000.0)
    await make_policy(database, concurrency={"limit": 20}, adaptive={"min": 1, "max": 20} | adaptive)
    return worker


async def adapt(database: Database) -> int:
    async with database.transaction() as tx:
        return await adapt_limits(tx)


async def line_of(database: Database) -> LineView:
    async with database.reading() as tx:
        (line_id,) = await lines.list_ids(tx, after=0, limit=2)
        (line,) = await lines.list_by_id(tx, [line_id])
    return line


async def log_of(database: Database) -> list[Admission]:
    async with database.reading() as tx:
        return [
            row
            for row in await lines.list_admissions(tx, (await line_of(database)).id, after=0, limit=10_000)
            if row.op == "limit"
        ]


async def run_generation(database: Database, worker: TestWorker, ending: Ending = SUCCESS) -> None:
    """Let as many end as a decision needs, all slots taken; above eight at once everything takes twice as long."""
    await drain_to_limit(database, worker)
    limit = (await line_of(database)).limit
    assert limit is not None
    for _ in range(-(-ended_needed(limit) // limit)):
        ids = await holders(database)
        assert len(ids) == limit
        await end(database, worker, ids, ending)
        seconds = FAST_SECONDS if limit <= 8 else 2 * FAST_SECONDS
        async with database.transaction() as tx:
            await tx.execute(
                "UPDATE execution SET ended_at = started_at + make_interval(secs => $2) WHERE id = ANY($1)",
                ids,
                seconds,
            )
        await release(database, ids)


async def drain_to_limit(database: Database, worker: TestWorker) -> None:
    """After a limit was lowered more than it allows still run; they end, and began too early to count."""
    while len(ids := await holders(database)) > ((await line_of(database)).limit or 0):
        await end(database, worker, ids[:1])
        async with database.transaction() as tx:
            await tx.execute("UPDATE execution SET started_at = started_at - interval '1 hour' WHERE id = $1", ids[0])
        await release(database, ids[:1])


async def holders(database: Database) -> Sequence[int]:
    async with database.reading() as tx:
        return await tx.fetch_column("SELECT execution_id FROM line_entry WHERE state = 'active' ORDER BY seq")


async def test_a_limit_settles_where_latency_doubles_and_halves_when_all_fails(database: Database) -> None:
    worker = await arrange(database)
    await request(database, count=350)
    await admit(database)
    limits = []
    for _ in range(24):
        await run_generation(database, worker)
        await adapt(database)
        await admit(database)
        limits.append((await line_of(database)).limit or 0)
    assert limits[:8] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert {6 <= limit <= 10 for limit in limits[7:]} == {True}

    before = limits[-1]
    await run_generation(database, worker, FAILED)
    await adapt(database)

    line = await line_of(database)
    assert line.limit == before // 2
    assert line.limit_reason is not None
    assert "failed, more than 10%" in line.limit_reason
    log = await log_of(database)
    assert [row.limit_in_force for row in log] == changes_of([1, *limits, before // 2])
    assert all(row.reason for row in log)
    await nothing_is_broken(database)


def changes_of(limits: Sequence[int]) -> list[int]:
    return [limit for position, limit in enumerate(limits) if position == 0 or limit != limits[position - 1]]


async def test_replicas_that_look_at_once_move_a_limit_once(database: Database) -> None:
    worker = await arrange(database)
    await request(database, count=30)
    await admit(database)
    await run_generation(database, worker)

    assert sum(await asyncio.gather(*(adapt(database) for _ in range(5)))) == 1

    assert (await line_of(database)).limit == 2


async def test_a_raised_limit_has_somebody_admit(database: Database) -> None:
    worker = await arrange(database)
    await request(database, count=30)
    await admit(database)
    await run_generation(database, worker)
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    await adapt(database)

    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT topic FROM outbox") == ["line.changed"]
    assert await admit(database) == 1


async def test_who_started_under_another_limit_says_nothing_about_this_one(database: Database) -> None:
    worker = await arrange(database, target={"failure_rate": 0.1})
    await request(database, count=60)
    await admit(database)
    early = await holders(database)
    assert len(early) == 20
    await end(database, worker, early, FAILED)
    async with database.transaction() as tx:
        await tx.execute("UPDATE line SET adapted_at = clock_timestamp()")
    await release(database, early)
    late = await holders(database)
    await end(database, worker, late[:19])
    await release(database, late[:19])

    assert await adapt(database) == 0
    await end(database, worker, late[19:])
    await release(database, late[19:])
    assert await adapt(database) == 0

    assert (await line_of(database)).limit == 20
    assert (await line_of(database)).limit_reason == "policy demo.limit: between 1 and 20"


async def test_a_delayed_retry_counts_as_the_failure_it_is(database: Database) -> None:
    await make_action(database, retry=RetryPolicy(max_attempts=3, delay_seconds=3600))
    worker = await make_worker(database, capacity=100)
    bounds = {"min": 1, "max": 20, "target": {"failure_rate": 0.1}}
    await make_policy(database, concurrency={"limit": 6}, adaptive=bounds)
    await request(database, count=12)
    await admit(database)
    await end(database, worker, await holders(database), FAILED)

    assert await adapt(database) == 1

    assert (await line_of(database)).limit_reason == "6 of 6 failed, more than 10%: 6 → 3"


async def test_other_bounds_hold_at_once_and_a_fixed_limit_is_fixed_again(database: Database) -> None:
    worker = await arrange(database)
    await request(database, count=40)
    await admit(database)
    await make_policy(database, concurrency={"limit": 20}, adaptive={"min": 4, "max": 20})
    await admit(database)
    line = await line_of(database)
    assert (line.limit, line.adaptive) == (4, {"min": 4, "max": 20})

    await make_policy(database, concurrency={"limit": 2})
    await admit(database)
    await drain_to_limit(database, worker)
    line = await line_of(database)
    assert (line.limit, line.adaptive, line.limit_reason) == (2, None, "policy demo.limit")
    for _ in range(3):
        await run_generation(database, worker)
    assert await adapt(database) == 0


async def test_why_tells_the_limit_and_how_it_came_about(database: Database) -> None:
    await arrange(database)
    ids = await request(database, count=2)
    await admit(database)

    async with database.reading() as tx:
        facts = await why.find_facts(tx, ids[1])

    assert facts is not None
    assert facts.line is not None
    assert (facts.line.limit, facts.line.limit_reason) == (1, "policy demo.limit: between 1 and 20")
    assert "(limit: policy demo.limit: between 1 and 20)" in explain(facts).sentence


async def test_a_policy_that_cancels_obeys_the_limit_that_moved(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 5, "method": "cancel"}, adaptive={"min": 2, "max": 9})

    ids = await request(database, count=4)

    async with database.reading() as tx:
        statuses = await tx.fetch_column("SELECT status FROM execution WHERE id = ANY($1) ORDER BY id", ids)
    assert statuses == ["queued", "queued", "cancelled", "cancelled"]
