"""What processes count: added up over all of them, nothing twice, and nothing asked where nothing was counted."""

from __future__ import annotations

import asyncpg
import pytest

from attune.operations.upkeep.store_counts import counting, store_counts
from attune.runtime.counts import Unstored
from attune.runtime.metrics import build_metrics
from attune.runtime.supervise import Tasks
from attune.storage.database import Database
from attune.storage.statistics import counters
from tests.witness.arrange import make_action, make_worker, request
from tests.witness.lines import FAILED, admit, end, make_policy


async def stored(database: Database) -> dict[str, float]:
    """Every counter above nothing, as Prometheus would print it."""
    async with database.reading() as tx:
        counts = await counters.list_all(tx)
    return {
        count.name + "".join(f" {name}={value}" for name, value in count.labels): count.value
        for count in counts
        if "_bucket" not in count.name
    }


async def test_processes_add_what_they_counted_since_they_last_did(database: Database) -> None:
    first, second = (build_metrics(version="1", service="executor") for _ in range(2))
    mine, others = Unstored(first.counts), Unstored(second.counts)
    first.conflicts.inc(2)
    second.conflicts.inc()
    second.sweep_actions.labels(sweep="deadline").inc(3)
    await store_counts(database, mine)
    await store_counts(database, others)
    first.conflicts.inc()
    await store_counts(database, mine)
    await store_counts(database, mine)
    assert await stored(database) == {"attune_conflicts_total": 4, "attune_sweep_actions_total sweep=deadline": 3}


async def test_a_histogram_is_stored_with_its_buckets(database: Database) -> None:
    metrics = build_metrics(version="1", service="worker")
    unstored = Unstored(metrics.counts)
    for seconds in (0.02, 0.2, 100_000):
        metrics.request_to_running_seconds.observe(seconds)
    await store_counts(database, unstored)
    async with database.reading() as tx:
        told = metrics.render(await counters.list_all(tx)).decode().splitlines()
    assert 'attune_request_to_running_seconds_bucket{le="0.025"} 1.0' in told
    assert 'attune_request_to_running_seconds_bucket{le="0.25"} 2.0' in told
    assert 'attune_request_to_running_seconds_bucket{le="+Inf"} 3.0' in told
    assert "attune_request_to_running_seconds_count 3.0" in told


async def test_what_could_not_be_stored_is_stored_the_next_time(database: Database) -> None:
    metrics = build_metrics(version="1", service="worker")
    unstored = Unstored(metrics.counts)
    metrics.fenced_writes.inc()
    async with database.transaction() as tx:
        await tx.execute("ALTER TABLE counter RENAME TO away")
    with pytest.raises(asyncpg.UndefinedTableError):
        await store_counts(database, unstored)
    async with database.transaction() as tx:
        await tx.execute("ALTER TABLE away RENAME TO counter")
    await store_counts(database, unstored)
    assert await stored(database) == {"attune_fenced_writes_total": 1}


async def test_where_nothing_was_counted_the_database_is_not_asked(database: Database) -> None:
    unstored = Unstored(build_metrics(version="1", service="worker").counts)
    await database.close()
    await store_counts(database, unstored)


async def test_a_service_that_ends_stores_the_last_it_counted(database: Database) -> None:
    metrics = build_metrics(version="1", service="worker")
    async with Tasks() as tasks, counting(database, metrics.counts, tasks):
        metrics.fenced_writes.inc()
    assert await stored(database) == {"attune_fenced_writes_total": 1}


async def test_every_end_is_counted_by_its_status_once_it_is_committed(database: Database) -> None:
    metrics = build_metrics(version="1", service="executor")
    database.on_ended = metrics.count_ended
    await make_action(database)
    await make_policy(database, concurrency={"limit": 3, "method": "cancel"})
    worker = await make_worker(database, capacity=10, heartbeat_interval=1000)
    ids = await request(database, count=4)
    await admit(database)
    await end(database, worker, ids[:2])
    await end(database, worker, ids[2:3], FAILED)
    ended = {count.labels[0][1]: count.value for count in metrics.counts() if count.name == "attune_executions_total"}
    assert ended == {"succeeded": 2, "failed": 1, "cancelled": 1}
    by_action = {count.labels for count in metrics.counts() if count.name == "attune_action_executions_total"}
    assert by_action == {(("action", "demo.work"), ("status", status)) for status in ended}


def test_ends_by_a_time_that_was_up_are_counted_by_which_one() -> None:
    metrics = build_metrics(version="1", service="executor")
    metrics.count_ended(
        {
            ("demo.work", "failed", "queue_timeout"): 2,
            ("demo.work", "timeout", "timeout"): 1,
            ("demo.work", "failed", "exit_code"): 1,
        }
    )
    told = {count.labels: count.value for count in metrics.counts() if "timeouts" in count.name}
    assert told == {(("by", "queue_timeout"),): 2, (("by", "timeout"),): 1}
