"""The last net: what no message will come for any more is looked at again."""

from __future__ import annotations

from attune.operations.cancel_execution import cancel_execution
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.release_executions import release_executions
from attune.operations.upkeep.heal_states import heal_states
from attune.storage.database import Database
from tests.witness.arrange import always_half, make_action, make_worker, request, statuses
from tests.witness.lines import make_policy


async def heal(database: Database) -> int:
    async with database.transaction() as tx:
        return await heal_states(tx)


async def test_a_slot_whose_owner_ended_unheard_goes_to_the_next(database: Database) -> None:
    await make_action(database)
    await make_policy(database, scope={"action": "demo.work"}, concurrency={"limit": 1})
    await make_worker(database)
    first, second = await request(database, count=2)
    async with database.transaction() as tx:
        line_id = await tx.fetch_value("SELECT id FROM line")
        await admit_waiting(tx, [line_id], actor="test", draw=always_half)
    async with database.transaction() as tx:
        await cancel_execution(tx, first, actor="test")
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    assert await heal(database) == 0, "a moment later its message may still be on the way"
    async with database.transaction() as tx:
        await tx.execute("UPDATE execution SET ended_at = ended_at - interval '1 minute' WHERE id = $1", first)
    assert await heal(database) == 1

    async with database.reading() as tx:
        told = await tx.fetch_row("SELECT type, items FROM outbox")
    assert told is not None
    assert (told["type"], told["items"]) == ("execution.completed", [[first, 1]])
    async with database.transaction() as tx:
        await release_executions(tx, [first], actor="test", draw=always_half)
    assert await statuses(database, [first, second]) == ["cancelled", "scheduled"]


async def test_a_line_held_in_the_moment_its_worker_arrived_is_looked_at_again(database: Database) -> None:
    """Neither sees the other: the worker is not there yet when the line is held, nor the line when it looks."""
    await make_action(database)
    await make_policy(database, scope={"action": "demo.work"}, concurrency={"limit": 1})
    (execution,) = await request(database)
    async with database.transaction() as tx:
        line_id = await tx.fetch_value("SELECT id FROM line")
        assert await admit_waiting(tx, [line_id], actor="test", draw=always_half) == 0
        await make_worker(database)
    async with database.transaction() as tx:
        assert await tx.fetch_value("SELECT held FROM line")
        await tx.execute("DELETE FROM outbox")

    assert await heal(database) == 0
    async with database.transaction() as tx:
        await tx.execute("UPDATE line SET last_updated = last_updated - interval '1 minute'")
    assert await heal(database) == 1

    async with database.transaction() as tx:
        told = await tx.fetch_row("SELECT type, items FROM outbox")
        assert told is not None
        assert (told["type"], told["items"]) == ("line.changed", [[line_id, 0]])
        await admit_waiting(tx, [line_id], actor="test", draw=always_half)
    assert await statuses(database, [execution]) == ["scheduled"]


async def test_a_line_that_nobody_can_serve_stays_held(database: Database) -> None:
    await make_action(database)
    await make_policy(database, scope={"action": "demo.work"}, concurrency={"limit": 1})
    await request(database)
    async with database.transaction() as tx:
        line_id = await tx.fetch_value("SELECT id FROM line")
        await admit_waiting(tx, [line_id], actor="test", draw=always_half)
        await tx.execute("UPDATE line SET last_updated = last_updated - interval '1 minute'")
    assert await heal(database) == 0
