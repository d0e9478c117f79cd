"""Pausing, resuming and clearing lines."""

from __future__ import annotations

from attune.domain.messages import MessageType
from attune.operations.access.write_audit import Actor
from attune.operations.lines import clear_line as clearing
from attune.operations.lines.clear_line import clear_all_lines, clear_line
from attune.operations.lines.pause_line import pause_line
from attune.operations.lines.resume_line import resume_line
from attune.storage.database import Database
from attune.storage.line_upkeep import controls
from attune.storage.line_upkeep.controls import Place
from tests.witness.arrange import make_action, statuses
from tests.witness.arrange_lines import join, make_line

ANA = Actor(name="ana")
BEN = Actor(name="ben")


async def log_of(database: Database, line_id: int) -> list[tuple[int, str]]:
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT n, op FROM admission_log WHERE line_id = $1 ORDER BY n", line_id)
    return [(row["n"], row["op"]) for row in rows]


async def announced(database: Database) -> list[tuple[str, list[list[int]]]]:
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT type, items FROM outbox ORDER BY id")
    return [(row["type"], row["items"]) for row in rows]


async def audited(database: Database) -> list[tuple[str, str, str]]:
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT operation, resource, actor FROM audit_log ORDER BY id")
    return [(row["operation"], row["resource"], row["actor"]) for row in rows]


async def pause(database: Database, line_id: int, by: Actor = ANA) -> bool:
    async with database.transaction() as tx:
        return await pause_line(tx, line_id, by=by)


async def resume(database: Database, line_id: int) -> bool:
    async with database.transaction() as tx:
        return await resume_line(tx, line_id, by=BEN)


async def test_a_pause_is_written_logged_and_audited_once(database: Database) -> None:
    await make_action(database)
    line = await make_line(database, waiting=2)

    assert await pause(database, line.line_id)
    assert not await pause(database, line.line_id, by=BEN)

    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT paused, paused_by, next_n FROM line WHERE id = $1", line.line_id)
    assert row is not None
    assert (row["paused"], row["paused_by"], row["next_n"]) == (True, "ana", 4)
    assert await log_of(database, line.line_id) == [(1, "enq"), (2, "enq"), (3, "pause")]
    assert await audited(database) == [("line.pause", f"line/{line.line_id}", "ana")]


async def test_a_resume_has_somebody_look_at_the_line(database: Database) -> None:
    await make_action(database)
    line = await make_line(database, waiting=1)
    await pause(database, line.line_id)
    assert await announced(database) == []

    assert await resume(database, line.line_id)
    assert not await resume(database, line.line_id)

    assert await announced(database) == [(MessageType.LINE_CHANGED, [[line.line_id, 0]])]
    assert await log_of(database, line.line_id) == [(1, "enq"), (2, "pause"), (3, "limit")]
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT paused, paused_by FROM line WHERE id = $1", line.line_id)
    assert row is not None
    assert (row["paused"], row["paused_by"]) == (False, None)


async def test_clearing_cancels_who_waits_and_nobody_else(database: Database) -> None:
    await make_action(database)
    line = await make_line(database, active=2, waiting=3)
    other = await make_line(database, group='{"host":"b"}', waiting=1)

    assert await clear_line(database, line.line_id, by=ANA) == 3

    assert await statuses(database, line.waiting) == ["cancelled"] * 3
    assert await statuses(database, line.active) == ["queued"] * 2
    assert await statuses(database, other.waiting) == ["queued"]
    async with database.reading() as tx:
        ends = await tx.fetch("SELECT error, change_reason FROM execution WHERE id = ANY($1)", line.waiting)
    assert {(end["error"]["code"], end["error"]["by"], end["change_reason"]) for end in ends} == {
        ("line_cleared", "ana", "line_cleared")
    }
    completed = [items for type_, items in await announced(database) if type_ == MessageType.EXECUTION_COMPLETED]
    assert [item[0] for items in completed for item in items] == list(line.waiting)
    assert ("line.clear", f"line/{line.line_id}", "ana") in await audited(database)


async def test_clearing_walks_a_line_of_several_batches_and_priorities(database: Database) -> None:
    await make_action(database)
    line = await make_line(database, waiting=clearing.BATCH_MAX + 3)
    urgent = await join(database, line.line_id, count=clearing.BATCH_MAX, priority=5)
    late = await join(database, line.line_id, count=7, priority=-5)

    assert await clear_line(database, line.line_id, by=ANA) == 2 * clearing.BATCH_MAX + 10

    assert set(await statuses(database, [*line.waiting, *urgent, *late])) == {"cancelled"}
    # Their entries are still there, because no executor has handled their ends; clearing again finds nobody.
    assert await clear_line(database, line.line_id, by=ANA) == 0


async def test_who_joined_after_the_clear_was_asked_for_is_not_looked_at(database: Database) -> None:
    await make_action(database)
    line = await make_line(database, waiting=2)
    async with database.transaction() as tx:
        last_seq = (await controls.lock_many(tx, [line.line_id]))[line.line_id].next_seq - 1
    await join(database, line.line_id, count=2)
    await join(database, line.line_id, count=2, priority=5)

    async with database.reading() as tx:
        found = await controls.list_waiting(tx, line.line_id, after=Place(), seq_max=last_seq, limit=10)

    assert [entry.execution_id for entry in found] == list(line.waiting)


async def test_all_lines_can_be_cleared_at_once(database: Database) -> None:
    await make_action(database)
    first = await make_line(database, waiting=2)
    second = await make_line(database, group='{"host":"b"}', waiting=1)
    idle = await make_line(database, group='{"host":"c"}', active=1)

    cleared = await clear_all_lines(database, by=ANA)

    assert cleared == {first.line_id: 2, second.line_id: 1}
    assert await statuses(database, [*first.waiting, *second.waiting]) == ["cancelled"] * 3
    assert await statuses(database, idle.active) == ["queued"]
