"""The room that an end leaves goes to the next in the transaction that ends it, and whoever must hear of it does."""

from __future__ import annotations

from collections.abc import Sequence

from attune.domain.messages import Item
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.lines.pass_slots_on import Taker, pass_slots_on
from attune.operations.start_executions import Started
from attune.storage.assignments import Held
from attune.storage.database import Database
from tests.operations.test_cancel_families import call, cancel, make_actions, run_flow
from tests.witness.arrange import TestWorker, always_half, make_action, make_worker, place, request, start, statuses
from tests.witness.lines import SUCCESS, admit, make_policy, nothing_is_broken


async def start_first(database: Database, worker: TestWorker, execution_id: int) -> Held:
    [started] = await start(database, worker, [(execution_id, 1)])
    return Held(execution_id=execution_id, attempt=1, lease=started.lease)


async def end_and_pass_on(
    database: Database, worker: TestWorker, held: Sequence[Held], *, slots: int = 10
) -> list[Started]:
    """What a worker does when something has ended on it; what was told before is forgotten."""

    def reserve(items: Sequence[Item]) -> Sequence[Item]:
        return items[:slots]

    reports = [Report(held=each, worker_id=worker.worker_id, ending=SUCCESS) for each in held]
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")
        assert await finish_executions(tx, reports, actor=worker.name, draw=always_half) == [True] * len(held)
        taker = Taker(claimant=worker.claimant, reserve=reserve)
        return await pass_slots_on(tx, [each.execution_id for each in held], taker=taker, draw=always_half)


async def told(database: Database, type_: str) -> list[int]:
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT items FROM outbox WHERE type = $1 ORDER BY id", type_)
    return [item[0] for row in rows for item in row["items"]]


async def test_who_waits_for_room_goes_before_a_newcomer_and_nobody_need_hear_of_the_end(database: Database) -> None:
    await make_action(database)
    await make_action(database, "demo.other")
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database, capacity=1)
    [first] = await request(database)
    await admit(database)
    held = await start_first(database, worker, first)
    waiting = await request(database, "demo.other")
    [newcomer] = await request(database)
    await place(database, waiting)
    assert await statuses(database, waiting) == ["scheduling"]

    [taken] = await end_and_pass_on(database, worker, [held])

    assert [taken.startable.execution_id] == waiting
    assert await statuses(database, [first, *waiting, newcomer]) == ["succeeded", "running", "scheduling"]
    assert await told(database, "execution.completed") == []
    assert await told(database, "execution.dispatched") == []
    await nothing_is_broken(database)


async def test_what_finds_no_slot_of_the_worker_is_told_to_it_and_keeps_its_room(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database)
    first, second = await request(database, count=2)
    await admit(database)
    held = await start_first(database, worker, first)

    assert await end_and_pass_on(database, worker, [held], slots=0) == []

    assert await statuses(database, [second]) == ["scheduled"]
    assert await told(database, "execution.dispatched") == [second]
    assert await told(database, "execution.completed") == []
    await nothing_is_broken(database)


async def test_an_end_is_told_where_the_next_went_to_another_worker(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database, capacity=1)
    first, second = await request(database, count=2)
    await admit(database)
    held = await start_first(database, worker, first)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET cordoned = true WHERE id = $1", worker.worker_id)
    await make_worker(database, "worker-2")

    assert await end_and_pass_on(database, worker, [held]) == []

    assert await told(database, "execution.dispatched") == [second]
    assert await told(database, "execution.completed") == [first]
    await nothing_is_broken(database)


async def test_the_end_of_a_parent_is_told_although_that_of_its_last_child_need_not_be(database: Database) -> None:
    worker = await make_actions(database)
    await make_policy(database, concurrency={"limit": 1})
    flow = await run_flow(database)
    [child] = await call(database, "demo.work", flow)
    [behind] = await request(database)
    await admit(database)
    held = await start_first(database, worker, child)
    await cancel(database, flow)

    [taken] = await end_and_pass_on(database, worker, [held])

    assert taken.startable.execution_id == behind
    assert await statuses(database, [flow, child]) == ["cancelled", "succeeded"]
    assert await told(database, "execution.completed") == [flow]
    await nothing_is_broken(database)
