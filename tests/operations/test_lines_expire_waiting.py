"""Giving up on executions that waited too long."""

from __future__ import annotations

from attune.operations.access.write_audit import Actor
from attune.operations.cancel_execution import cancel_execution
from attune.operations.lines import expire_waiting as expiring
from attune.operations.lines.expire_waiting import expire_waiting
from attune.operations.lines.pause_line import pause_line
from attune.operations.lines.resume_line import resume_line
from attune.storage.database import Database
from tests.witness.arrange import make_action, statuses
from tests.witness.arrange_lines import join, make_line, make_policy

ANA = Actor(name="ana")


async def expire(database: Database, default_seconds: float = 60) -> int:
    async with database.transaction() as tx:
        return await expire_waiting(tx, default_seconds=default_seconds)


async def test_who_waited_longer_than_the_setting_fails(database: Database) -> None:
    await make_action(database)
    line = await make_line(database, active=1)
    (old,) = await join(database, line.line_id, count=1, waited_seconds=61)
    (young,) = await join(database, line.line_id, count=1, waited_seconds=30)

    assert await expire(database) == 1

    assert await statuses(database, [old, young, *line.active]) == ["failed", "queued", "queued"]
    async with database.reading() as tx:
        error = await tx.fetch_value("SELECT error FROM execution WHERE id = $1", old)
    assert error["code"] == "queue_timeout"
    assert "60 s" in error["message"]
    assert await expire(database) == 0


async def test_a_policy_may_allow_less_or_more_than_the_setting(database: Database) -> None:
    await make_action(database)
    await make_action(database, "demo.patient")
    hasty = await make_policy(database, "demo.hasty", "demo.work", queue_timeout_seconds=5)
    patient = await make_policy(database, "demo.patient", "demo.patient", queue_timeout_seconds=600)
    first = await make_line(database, policy_id=hasty)
    second = await make_line(database, "demo.patient", policy_id=patient)
    (gone,) = await join(database, first.line_id, count=1, waited_seconds=6)
    (kept,) = await join(database, second.line_id, "demo.patient", count=1, waited_seconds=120)

    assert await expire(database) == 1

    assert await statuses(database, [gone, kept]) == ["failed", "queued"]


async def test_one_pass_is_bounded_and_the_next_takes_the_rest(database: Database) -> None:
    await make_action(database)
    line = await make_line(database)
    ids = await join(database, line.line_id, count=expiring.EXPIRED_MAX + 1, waited_seconds=100)

    assert await expire(database) == expiring.EXPIRED_MAX
    assert await expire(database) == 1

    assert set(await statuses(database, ids)) == {"failed"}


async def test_who_was_cancelled_meanwhile_stays_cancelled(database: Database) -> None:
    await make_action(database)
    line = await make_line(database)
    (cancelled,) = await join(database, line.line_id, count=1, waited_seconds=100)
    async with database.transaction() as tx:
        await cancel_execution(tx, cancelled, actor="ana")

    assert await expire(database) == 0

    assert await statuses(database, [cancelled]) == ["cancelled"]


async def test_nobody_expires_in_a_paused_line_and_after_it_everybodys_time_begins_anew(database: Database) -> None:
    await make_action(database)
    line = await make_line(database)
    ids = await join(database, line.line_id, count=2, waited_seconds=100)
    async with database.transaction() as tx:
        await pause_line(tx, line.line_id, by=ANA)

    assert await expire(database) == 0
    async with database.transaction() as tx:
        await resume_line(tx, line.line_id, by=ANA)
    assert await expire(database) == 0
    assert await statuses(database, ids) == ["queued"] * 2

    async with database.transaction() as tx:
        await tx.execute("UPDATE line_entry SET timeout_from = timeout_from - interval '61 seconds'")
        await tx.execute("UPDATE line SET resumed_at = resumed_at - interval '61 seconds'")
    # The first pass learns that their time began when the line was resumed, the second that it is over.
    assert [await expire(database), await expire(database)] == [0, 2]


async def test_a_pause_that_nobody_noticed_gives_its_time_back(database: Database) -> None:
    await make_action(database)
    line = await make_line(database)
    ids = await join(database, line.line_id, count=1, waited_seconds=59)
    async with database.transaction() as tx:
        await pause_line(tx, line.line_id, by=ANA)
        await resume_line(tx, line.line_id, by=ANA)
    async with database.transaction() as tx:
        await tx.execute("UPDATE line_entry SET timeout_from = timeout_from - interval '10 seconds'")

    assert await expire(database) == 0
    assert await statuses(database, ids) == ["queued"]


async def test_a_long_paused_line_does_not_keep_others_from_expiring(database: Database) -> None:
    await make_action(database)
    await make_action(database, "demo.other")
    paused = await make_line(database)
    await join(database, paused.line_id, count=expiring.EXPIRED_MAX + 1, waited_seconds=200)
    async with database.transaction() as tx:
        await pause_line(tx, paused.line_id, by=ANA)
    other = await make_line(database, "demo.other")
    await join(database, other.line_id, "demo.other", count=1, waited_seconds=100)

    assert await expire(database) == 1

    async with database.reading() as tx:
        overdue = "SELECT count(*) FROM line_entry WHERE timeout_from < now() - interval '60 seconds' AND line_id = $1"
        assert await tx.fetch_value(overdue, paused.line_id) == 0
