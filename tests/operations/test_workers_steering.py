"""Pings and pongs, and taking workers out and letting them back in."""

from __future__ import annotations

import asyncio
import random

import pytest

from attune.domain.errors import NotFound
from attune.operations.access.write_audit import Actor
from attune.operations.attend_workers import begin_drain, renew_leases
from attune.operations.rescue_lost import rescue_lost
from attune.operations.workers.answer_ping import answer_ping
from attune.operations.workers.cordon_worker import cordon_worker, uncordon_worker
from attune.operations.workers.drain_worker import drain_worker
from attune.operations.workers.probe_workers import probe_workers
from attune.storage.database import Database
from tests.witness.arrange import TestWorker, always_half, make_action, make_worker, place, request, start, statuses

PATIENT = 60.0
INTERVAL = 1.0
ROUNDS = 500
ANA = Actor(name="ana")


async def status_of(database: Database, worker: TestWorker) -> str:
    async with database.reading() as tx:
        return str(await tx.fetch_value("SELECT status FROM worker WHERE id = $1", worker.worker_id))


async def topics(database: Database) -> list[str]:
    async with database.reading() as tx:
        return await tx.fetch_column("SELECT topic FROM outbox ORDER BY id")


async def probe(database: Database) -> int:
    async with database.transaction() as tx:
        return await probe_workers(tx, interval_seconds=INTERVAL)


async def let_pass(database: Database, seconds: float) -> None:
    """As if the pings of all workers had been sent this much earlier."""
    async with database.transaction() as tx:
        await tx.execute(
            "UPDATE worker SET pinged_at = pinged_at - make_interval(secs => $1),"
            " awaited_since = awaited_since - make_interval(secs => $1)",
            seconds,
        )


async def fall_silent(database: Database) -> None:
    await probe(database)
    await let_pass(database, INTERVAL)
    assert await probe(database) == 1


async def test_replicas_that_probe_together_ping_a_worker_once(database: Database) -> None:
    worker = await make_worker(database, heartbeat_interval=PATIENT)

    await asyncio.gather(*(probe(database) for _ in range(4)))

    assert await topics(database) == [f"execution.cancel.worker.{worker.worker_id}"]


async def test_a_worker_that_does_not_answer_is_taken_out_and_loses_nothing(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    ids = await request(database, count=2)
    await place(database, ids)
    await start(database, worker, [(ids[0], 1)])

    await fall_silent(database)
    async with database.transaction() as tx:
        await renew_leases(tx, [], instance=worker.instance, lease_seconds=30)
        await rescue_lost(tx, placements_max=5, draw=always_half)

    assert await status_of(database, worker) == "unresponsive", "a heartbeat is no answer"
    assert await statuses(database, ids) == ["running", "scheduled"], "silence reclaims nothing"
    late = await request(database)
    await place(database, late)
    assert await statuses(database, late) == ["scheduling"]


async def test_an_answer_after_silence_brings_a_worker_back_and_is_news(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    await fall_silent(database)
    await place(database, await request(database))
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    async with database.transaction() as tx:
        await answer_ping(tx, instance=worker.instance)

    assert await status_of(database, worker) == "active"
    assert await topics(database) == ["pool.changed"]


async def test_a_silent_worker_is_not_buried_in_pings(database: Database) -> None:
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    for _ in range(5):
        await probe(database)
        await let_pass(database, INTERVAL)

    assert await topics(database) == [f"execution.cancel.worker.{worker.worker_id}"]


async def test_an_answer_in_time_keeps_a_worker_active(database: Database) -> None:
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    for _ in range(3):
        await probe(database)
        async with database.transaction() as tx:
            await answer_ping(tx, instance=worker.instance)
        await let_pass(database, INTERVAL)
        assert await probe(database) == 0

    assert await status_of(database, worker) == "active"


async def test_a_cordoned_worker_gets_nothing_and_keeps_what_it_has(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    before = await request(database)
    await place(database, before)
    async with database.transaction() as tx:
        await cordon_worker(tx, worker.worker_id, by=ANA)
    after = await request(database)
    await place(database, after)
    assert await statuses(database, before + after) == ["scheduled", "scheduling"]
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    async with database.transaction() as tx:
        await uncordon_worker(tx, worker.worker_id, by=ANA)

    assert "pool.changed" in await topics(database)
    async with database.reading() as tx:
        deeds = await tx.fetch_column("SELECT operation FROM audit_log ORDER BY id")
    assert deeds == ["worker.cordon", "worker.uncordon"]


async def test_draining_gives_back_what_was_not_started_and_tells_the_worker(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    ids = await request(database, count=3)
    pinned = await request(database, worker_id=worker.worker_id)
    await place(database, ids + pinned)
    await start(database, worker, [(ids[0], 1)])

    assert await drain_worker(database, worker.worker_id, by=ANA) == 2
    assert await drain_worker(database, worker.worker_id, by=ANA) == 0

    assert await statuses(database, ids + pinned) == ["running", "scheduling", "scheduling", "scheduled"]
    assert await status_of(database, worker) == "draining"
    assert f"execution.cancel.worker.{worker.worker_id}" in await topics(database)
    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT placements FROM execution WHERE id = ANY($1)", ids[1:]) == [0, 0]


async def test_a_drained_worker_can_be_let_back_in_but_not_one_that_is_leaving(database: Database) -> None:
    drained = await make_worker(database, "drained", heartbeat_interval=PATIENT)
    leaving = await make_worker(database, "leaving", heartbeat_interval=PATIENT)
    for worker in (drained, leaving):
        await drain_worker(database, worker.worker_id, by=ANA)
    async with database.transaction() as tx:
        await begin_drain(tx, instance=leaving.instance)
        for worker in (drained, leaving):
            await uncordon_worker(tx, worker.worker_id, by=ANA)

    assert [await status_of(database, worker) for worker in (drained, leaving)] == ["active", "draining"]


async def test_a_worker_that_does_not_exist_cannot_be_steered(database: Database) -> None:
    with pytest.raises(NotFound):
        await drain_worker(database, 999, by=ANA)


async def test_no_placement_slips_behind_a_drain(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, capacity=10_000, heartbeat_interval=3600)
    ids = await request(database, count=ROUNDS)
    outcomes = {"drained first": 0, "placed first": 0}
    dice = random.Random(7)
    span = 0.0  # About as long as a placement takes, so that the drain falls before, into and behind it.

    async def drain_soon() -> int:
        await asyncio.sleep(dice.random() * 2 * span)
        return await drain_worker(database, worker.worker_id, by=ANA)

    async def place_one(execution_id: int) -> None:
        nonlocal span
        began = asyncio.get_running_loop().time()
        await place(database, [execution_id])
        span = asyncio.get_running_loop().time() - began

    for execution_id in ids:
        handed_back, _ = await asyncio.gather(drain_soon(), place_one(execution_id))
        async with database.transaction() as tx:
            assert await tx.fetch_value("SELECT count(*) FROM assignment") == 0, "it would wait for a timeout"
            outcomes["placed first" if handed_back else "drained first"] += 1
            await tx.execute("UPDATE execution SET status = 'cancelled', ended_at = now() WHERE id = $1", execution_id)
            await tx.execute("DELETE FROM unplaced")
            await uncordon_worker(tx, worker.worker_id, by=ANA)
    assert sum(outcomes.values()) == ROUNDS
    assert all(outcomes.values()), f"the race went only one way: {outcomes}"
