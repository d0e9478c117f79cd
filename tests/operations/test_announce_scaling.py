"""A change of what a pool wants is written down once, and the list of them stays short."""

from __future__ import annotations

import asyncio

from attune.domain.availability.scaling import ScalingChange
from attune.operations.workers.announce_scaling import announce_scaling
from attune.storage.availability import scaling_changes
from attune.storage.database import Database
from attune.storage.views import scaling
from tests.operations.test_dead_letters import bury
from tests.witness.arrange import make_action, make_worker, place, request


async def announce(database: Database) -> list[ScalingChange]:
    async with database.transaction() as tx:
        return await announce_scaling(tx)


def steps(changes: list[ScalingChange]) -> list[tuple[int, int]]:
    return [(each.wanted_before, each.wanted) for each in changes]


async def test_a_pool_that_wants_more_and_then_nobody_is_told_twice(database: Database) -> None:
    await make_action(database)
    await make_worker(database, capacity=2, heartbeat_interval=1000)
    assert await announce(database) == []
    await place(database, await request(database, count=7))

    assert steps(await announce(database)) == [(0, 4)]
    assert await announce(database) == []
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM unplaced")
        await tx.execute("DELETE FROM assignment")
    assert steps(await announce(database)) == [(4, 0)]
    assert await announce(database) == []


async def test_replicas_that_look_at_once_write_each_change_down_once(database: Database) -> None:
    await make_action(database)
    await make_worker(database, capacity=2, heartbeat_interval=1000)
    await place(database, await request(database, count=7))

    told = await asyncio.gather(*(announce(database) for _ in range(8)))

    assert sorted(map(len, told)) == [0] * 7 + [1]
    async with database.reading() as tx:
        assert [each.wanted for each in await scaling_changes.list_newest(tx, limit=10)] == [4]


async def test_only_the_newest_are_kept_and_the_last_of_each_pool_that_wants_somebody(database: Database) -> None:
    change = ScalingChange(
        pool="1", runner="native", labels={}, isolation=None, wanted_before=0, wanted=2, backlog=1, workers=0
    )
    others = [
        ScalingChange(
            pool="2", runner="native", labels={}, isolation=None, wanted_before=n, wanted=n + 1, backlog=1, workers=0
        )
        for n in range(20)
    ]
    async with database.transaction() as tx:
        await scaling_changes.insert(tx, [change, *others])
        await scaling_changes.delete_beyond(tx, kept=5)
        kept = await scaling_changes.list_newest(tx, limit=100)
        assert [each.pool for each in kept] == ["2"] * 5 + ["1"]
        assert {each.pool: each.wanted for each in await scaling_changes.list_last(tx)} == {"1": 2, "2": 20}


async def test_dead_letters_of_the_last_minute_are_counted_for_their_pool(database: Database) -> None:
    await make_action(database)
    await make_worker(database, capacity=4, heartbeat_interval=1000)
    ids = await request(database, count=3)
    await place(database, ids)
    await bury(database, *[(execution_id, 1) for execution_id in ids])

    async with database.transaction() as tx:
        assert [each.dead_letters_per_minute for each in await scaling.list_demand(tx)] == [3]
        await tx.execute("UPDATE dead_letter SET parked_at = parked_at - interval '1 minute'")
        assert [each.dead_letters_per_minute for each in await scaling.list_demand(tx)] == [0]
