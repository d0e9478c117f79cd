"""A slot comes back although the message about its owner's end was lost."""

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
