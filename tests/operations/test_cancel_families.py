"""A parent that was asked to stop ends with its last child, in the transaction that ends the child."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

import pytest

from attune.domain.definitions import Runner
from attune.domain.execution import TERMINAL
from attune.domain.retry import Ending
from attune.operations.acceptance import Request
from attune.operations.cancel_execution import cancel_execution
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.lines.join_lines import QueueFull
from attune.operations.request_executions import request_executions
from attune.storage.assignments import Held
from attune.storage.database import Database, may_work_later
from tests.plugins.rounds import Rounds
from tests.witness.arrange import (
    GRACE_SECONDS,
    MAX_QUEUE_LENGTH,
    TestWorker,
    always_half,
    make_action,
    make_worker,
    place,
    start,
    statuses,
)
from tests.witness.lines import FAILED, SUCCESS, nothing_is_broken
from tests.witness.prepare import prepare

ROUNDS = 40
TRIES_MAX = 50


async def make_actions(database: Database) -> TestWorker:
    await make_action(database, "demo.flow", runner=Runner.WORKFLOW, entry_point="flow.yaml")
    await make_action(database)
    return await make_worker(database, capacity=10_000, heartbeat_interval=3600)


async def call(database: Database, ref: str, parent: int | None, *, count: int = 1) -> list[int]:
    """What a parent asks for as a part of itself."""
    async with database.transaction() as tx:
        wanted = [Request(action_ref=ref, parameters={}, parent=parent)] * count
        prepared = await prepare(tx, wanted)
        [answer] = await request_executions(
            tx, [prepared], max_queue_length=MAX_QUEUE_LENGTH, no_worker_grace_seconds=GRACE_SECONDS
        )
        assert not isinstance(answer, QueueFull)
        return [row.execution_id for row in answer]


async def run_flow(database: Database, parent: int | None = None) -> int:
    """A parent that is under way, without a worker."""
    [flow] = await call(database, "demo.flow", parent)
    async with database.transaction() as tx:
        await tx.execute("UPDATE execution SET status = 'running', tries = 1, started_at = now() WHERE id = $1", flow)
    return flow


async def run_children(database: Database, worker: TestWorker, parent: int, *, count: int = 1) -> list[Held]:
    children = await call(database, "demo.work", parent, count=count)
    await place(database, children)
    started = await start(database, worker, [(child, 1) for child in children])
    return [Held(execution_id=each.startable.execution_id, attempt=1, lease=each.lease) for each in started]


async def cancel(database: Database, execution_id: int) -> None:
    async with database.transaction() as tx:
        await cancel_execution(tx, execution_id, actor="ana")


async def finish(database: Database, worker: TestWorker, held: Sequence[Held], ending: Ending = FAILED) -> None:
    reports = [Report(held=each, worker_id=worker.worker_id, ending=ending) for each in held]
    async with database.transaction() as tx:
        await finish_executions(tx, reports, actor=worker.name, draw=always_half)


async def test_a_parent_ends_with_the_last_of_its_children_and_says_who_asked(database: Database) -> None:
    worker = await make_actions(database)
    flow = await run_flow(database)
    first, last = await run_children(database, worker, flow, count=2)
    await cancel(database, flow)
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    await finish(database, worker, [first])
    assert await statuses(database, [flow]) == ["canceling"]
    await finish(database, worker, [last], SUCCESS)

    assert await statuses(database, [flow, last.execution_id]) == ["cancelled", "succeeded"]
    async with database.reading() as tx:
        error, ended = await tx.fetch_row("SELECT error, ended_at FROM execution WHERE id = $1", flow) or ({}, None)
        assert await tx.fetch_value("SELECT ended_at FROM execution WHERE id = $1", last.execution_id) == ended
        told = await tx.fetch_column("SELECT items FROM outbox WHERE topic = 'execution.completed' ORDER BY id")
    assert error == {"code": "cancelled", "message": "cancelled by ana", "by": "ana"}
    assert [[item[0] for item in items] for items in told] == [[first.execution_id], [last.execution_id, flow]]
    await nothing_is_broken(database)


async def test_every_generation_that_was_asked_to_stop_ends_at_once(database: Database) -> None:
    worker = await make_actions(database)
    grandparent = await run_flow(database)
    parent = await run_flow(database, grandparent)
    [child] = await run_children(database, worker, parent)
    await cancel(database, grandparent)
    assert await statuses(database, [grandparent, parent]) == ["canceling"] * 2

    await finish(database, worker, [child])

    assert await statuses(database, [grandparent, parent, child.execution_id]) == ["cancelled"] * 3


async def test_a_parent_that_was_not_asked_to_stop_goes_on(database: Database) -> None:
    worker = await make_actions(database)
    grandparent = await run_flow(database)
    parent = await run_flow(database, grandparent)
    [child] = await run_children(database, worker, parent)
    await cancel(database, parent)

    await finish(database, worker, [child])

    assert await statuses(database, [grandparent, parent]) == ["running", "cancelled"]


async def test_a_parent_that_a_worker_runs_ends_when_its_worker_says_so(database: Database) -> None:
    worker = await make_actions(database)
    [parent] = await run_children(database, worker, await run_flow(database))
    [child] = await run_children(database, worker, parent.execution_id)
    await cancel(database, parent.execution_id)

    await finish(database, worker, [child])

    assert await statuses(database, [parent.execution_id]) == ["canceling"]


async def test_a_child_that_is_cancelled_by_itself_ends_a_parent_that_is_stopping(database: Database) -> None:
    worker = await make_actions(database)
    flow = await run_flow(database)
    [running] = await run_children(database, worker, flow)
    await cancel(database, flow)
    [waiting] = await call(database, "demo.work", flow)

    await finish(database, worker, [running])
    assert await statuses(database, [flow]) == ["canceling"], "one of its children is still there"
    await cancel(database, waiting)

    assert await statuses(database, [flow, waiting]) == ["cancelled"] * 2


async def persistently(step: Callable[[], Awaitable[None]]) -> None:
    """As every service does with what may work later."""
    for _ in range(TRIES_MAX):
        try:
            return await step()
        except Exception as error:
            if not may_work_later(error):
                raise
    raise AssertionError("it never worked")


@pytest.mark.timeout(600)
async def test_children_that_end_at_once_end_their_parent_once(database: Database, rounds: Rounds) -> None:
    worker = await make_actions(database)
    flows = []
    for _ in range(rounds(ROUNDS)):
        flow = await run_flow(database)
        children = await run_children(database, worker, flow, count=3)
        await cancel(database, flow)
        await asyncio.gather(*(persistently(partial(finish, database, worker, [each])) for each in children))
        flows.append(flow)

    await ended_once(database, flows)


@pytest.mark.timeout(600)
async def test_a_cancel_that_meets_the_last_children_ends_the_parent_once(database: Database, rounds: Rounds) -> None:
    worker = await make_actions(database)
    dice = Random(7)
    flows = []

    async def late(step: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(dice.random() * 0.004)
        await persistently(step)

    for _ in range(rounds(ROUNDS)):
        grandparent = await run_flow(database)
        flow = await run_flow(database, grandparent)
        children = await run_children(database, worker, flow, count=2)

        await asyncio.gather(
            late(partial(cancel, database, grandparent)),
            late(partial(cancel, database, flow)),
            *(late(partial(finish, database, worker, [each], SUCCESS)) for each in children),
        )
        flows += [grandparent, flow]

    await ended_once(database, flows)


async def ended_once(database: Database, flows: Sequence[int]) -> None:
    async with database.reading() as tx:
        ends = await tx.fetch(
            "SELECT execution_id, count(*) AS count FROM execution_history"
            " WHERE to_status = ANY($1) AND execution_id = ANY($2) GROUP BY execution_id",
            [str(each) for each in TERMINAL],
            list(flows),
        )
        deadlocks = await tx.fetch_value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert {row["execution_id"]: row["count"] for row in ends} == dict.fromkeys(flows, 1)
    assert set(await statuses(database, flows)) == {"cancelled"}
    assert deadlocks == 0
