"""An execution never waits for a slot that its own ancestor holds until it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from attune.domain.definitions import Runner
from attune.operations.acceptance import Request
from attune.operations.lines.join_lines import QueueFull
from attune.operations.request_executions import request_executions
from attune.storage.database import Database
from attune.storage.lines import ANCESTORS_MAX
from attune.storage.views import executions, why
from tests.witness.arrange import (
    MAX_QUEUE_LENGTH,
    TestWorker,
    make_action,
    make_worker,
    place,
    request,
    start,
    statuses,
)
from tests.witness.lines import admit, make_policy, nothing_is_broken
from tests.witness.prepare import prepare


async def call(database: Database, ref: str, parent: int, *, not_before: datetime | None = None) -> int:
    """What an execution asks for as a part of itself."""
    wanted = replace(Request(action_ref=ref, parameters={}, parent=parent), not_before=not_before)
    async with database.transaction() as tx:
        prepared = await prepare(tx, [wanted], requested_by="workflow test")
        (answer,) = await request_executions(
            tx, [prepared], max_queue_length=MAX_QUEUE_LENGTH, no_worker_grace_seconds=60
        )
    assert not isinstance(answer, QueueFull)
    return answer[0].execution_id


async def run_parent(database: Database, worker: TestWorker, ref: str = "demo.flow") -> int:
    """Running, and the holder of its line's only slot."""
    (parent,) = await request(database, ref)
    await admit(database)
    assert len(await start(database, worker, [(parent, 1)])) == 1
    return parent


async def arrange(database: Database) -> TestWorker:
    for ref in ("demo.flow", "demo.work"):
        await make_action(database, ref)
    await make_policy(database, scope={"pack": "demo"}, concurrency={"limit": 1})
    return await make_worker(database)


async def reasons(database: Database, execution_id: int) -> Sequence[str]:
    async with database.reading() as tx:
        return await tx.fetch_column(
            "SELECT reason FROM execution_history WHERE execution_id = $1 ORDER BY id", execution_id
        )


async def test_the_child_of_the_holder_of_the_only_slot_runs(database: Database) -> None:
    worker = await arrange(database)
    parent = await run_parent(database, worker)

    child = await call(database, "demo.work", parent)
    await place(database, [child])

    assert await statuses(database, [parent, child]) == ["running", "scheduled"]
    assert (await reasons(database, child))[0] == f"inherits slot of {parent}"
    async with database.reading() as tx:
        view = await executions.find(tx, child)
        facts = await why.find_facts(tx, child)
        assert await tx.fetch_value("SELECT count(*) FROM line_entry") == 1
    assert view is not None
    assert (view.parent, view.inherits_slot_of, view.line) == (parent, parent, None)
    assert facts is not None
    assert facts.inherits_slot_of == parent
    await nothing_is_broken(database)


async def test_a_slot_is_inherited_over_generations_and_from_the_nearest(database: Database) -> None:
    worker = await arrange(database)
    grandparent = await run_parent(database, worker)
    parent = await call(database, "demo.flow", grandparent)
    child = await call(database, "demo.work", parent)

    await place(database, [parent, child])

    assert (await reasons(database, child))[0] == f"inherits slot of {grandparent}"
    assert await statuses(database, [parent, child]) == ["scheduled", "scheduled"]


async def test_beyond_the_last_generation_looked_at_a_child_joins_the_line(database: Database) -> None:
    worker = await arrange(database)
    ancestor = await run_parent(database, worker)
    for _ in range(ANCESTORS_MAX - 1):
        ancestor = await call(database, "demo.work", ancestor)
    nearest, beyond = await call(database, "demo.work", ancestor), 0
    beyond = await call(database, "demo.work", nearest)

    assert await statuses(database, [nearest, beyond]) == ["requested", "queued"]


async def test_a_child_of_somebody_who_only_waits_joins_the_line(database: Database) -> None:
    await arrange(database)
    (waiting,) = await request(database, "demo.flow")

    child = await call(database, "demo.work", waiting)

    assert await statuses(database, [child]) == ["queued"]


async def test_a_child_with_another_line_waits_there(database: Database) -> None:
    worker = await arrange(database)
    parent = await run_parent(database, worker)
    await make_policy(database, ref="demo.own", scope={"action": "demo.work"}, concurrency={"limit": 1})

    child = await call(database, "demo.work", parent)

    assert await statuses(database, [child]) == ["queued"]


async def test_a_delayed_child_inherits_when_it_is_due(database: Database) -> None:
    worker = await arrange(database)
    parent = await run_parent(database, worker)
    child = await call(database, "demo.work", parent, not_before=datetime.now(UTC) + timedelta(hours=1))
    async with database.transaction() as tx:
        await tx.execute("UPDATE execution SET not_before = now() WHERE id = $1", child)

    await place(database, [child])

    assert await statuses(database, [child]) == ["scheduled"]
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT inherits FROM execution WHERE id = $1", child) == parent


async def test_a_workflow_obeys_only_a_policy_of_its_own_action_and_an_inquiry_none(database: Database) -> None:
    await make_action(database, "demo.flow", runner=Runner.WORKFLOW, entry_point="flow.yaml")
    await make_action(database, "demo.own_flow", runner=Runner.WORKFLOW, entry_point="flow.yaml")
    await make_action(database, "demo.ask", runner=Runner.INQUIRY, entry_point=None)
    await make_policy(database, scope={"pack": "demo"}, concurrency={"limit": 1})
    await make_policy(database, ref="demo.everything", scope="global", concurrency={"limit": 1})
    for ref in ("own_flow", "ask"):
        await make_policy(database, ref=f"demo.{ref}_limit", scope={"action": f"demo.{ref}"}, concurrency={"limit": 1})

    asked = [(await request(database, ref))[0] for ref in ("demo.flow", "demo.own_flow", "demo.ask")]

    assert await statuses(database, asked) == ["requested", "queued", "requested"]
