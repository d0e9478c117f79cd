"""People's hands on a line that is being served: joining, admission and release as they really happen."""

from __future__ import annotations

from collections.abc import Sequence

from attune.operations.access.write_audit import Actor
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.lines.clear_line import clear_line
from attune.operations.lines.expire_waiting import expire_waiting
from attune.operations.lines.pause_line import pause_line
from attune.operations.lines.resume_line import resume_line
from attune.operations.release_executions import release_executions
from attune.storage.database import Database
from attune.storage.views import lines, why
from attune.storage.views.lines import LineView
from tests.witness.arrange import always_half, make_action, make_worker, request, statuses
from tests.witness.arrange_lines import make_policy

ANA = Actor(name="ana")


async def limited(database: Database) -> None:
    """An action that may run twice at once, and a worker with room for more."""
    await make_action(database)
    await make_worker(database, capacity=10)
    await make_policy(database, "demo.two", "demo.work", queue_timeout_seconds=None)


async def admit(database: Database) -> int:
    async with database.transaction() as tx:
        return await admit_waiting(tx, [(await line_of(database)).id], actor="executor test", draw=always_half)


async def release(database: Database, ended: Sequence[int]) -> None:
    async with database.transaction() as tx:
        await release_executions(tx, ended, actor="executor test", draw=always_half)


async def line_of(database: Database) -> LineView:
    async with database.reading() as tx:
        (line_id,) = await lines.list_ids(tx, after=0, limit=2)
        (line,) = await lines.list_by_id(tx, [line_id])
    return line


async def test_a_paused_line_admits_nobody_and_a_resumed_one_in_order(database: Database) -> None:
    await limited(database)
    ids = await request(database, count=3)
    line = await line_of(database)
    async with database.transaction() as tx:
        await pause_line(tx, line.id, by=ANA)

    assert await admit(database) == 0
    assert await statuses(database, ids) == ["queued"] * 3

    async with database.transaction() as tx:
        await resume_line(tx, line.id, by=ANA)
    assert await admit(database) == 2
    assert await statuses(database, ids) == ["scheduled", "scheduled", "queued"]


async def test_a_cleared_line_is_empty_once_the_ends_are_handled(database: Database) -> None:
    await limited(database)
    ids = await request(database, count=5)
    await admit(database)

    assert await clear_line(database, (await line_of(database)).id, by=ANA) == 3
    await release(database, ids[2:])

    after = await line_of(database)
    assert (after.active, after.waiting, after.oldest_enqueued_at) == (2, 0, None)
    assert await statuses(database, ids) == ["scheduled"] * 2 + ["cancelled"] * 3
    async with database.reading() as tx:
        log = await lines.list_admissions(tx, after.id, after=0, limit=100)
    assert [row.n for row in log] == list(range(1, 11))
    assert [row.op for row in log] == ["enq"] * 5 + ["admit"] * 2 + ["remove"] * 3


async def test_who_joins_after_a_clear_is_served(database: Database) -> None:
    await limited(database)
    old = await request(database, count=2)
    await clear_line(database, (await line_of(database)).id, by=ANA)
    new = await request(database, count=2)
    await release(database, old)

    await admit(database)

    assert await statuses(database, new) == ["scheduled"] * 2


async def test_who_waited_too_long_makes_room_for_those_behind(database: Database) -> None:
    await limited(database)
    first, second = await request(database, count=2)
    async with database.transaction() as tx:
        await tx.execute(
            "UPDATE line_entry SET timeout_from = now() - interval '2 hours' WHERE execution_id = $1", first
        )
        assert await expire_waiting(tx, default_seconds=3600) == 1
    await release(database, [first])

    await admit(database)

    assert await statuses(database, [first, second]) == ["failed", "scheduled"]
    line = await line_of(database)
    assert (line.active, line.waiting) == (1, 0)


async def test_positions_move_up_as_slots_become_free(database: Database) -> None:
    await limited(database)
    ids = await request(database, count=5)
    await admit(database)
    async with database.reading() as tx:
        facts = [await why.find_facts(tx, execution_id) for execution_id in ids]
    assert [each.line.position if each and each.line else None for each in facts] == [None, None, 1, 2, 3]
