"""Lines: executions are admitted in the order they were accepted, and never more than the limit hold a slot."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from attune.domain.definitions import RetryPolicy
from attune.operations.cancel_execution import cancel_execution
from attune.operations.lines.join_lines import QueueFull
from attune.storage.database import Database
from tests.witness.arrange import TestWorker, make_action, make_worker, place, request, statuses
from tests.witness.lines import FAILED, admit, end, make_policy, nothing_is_broken, release


async def admitted(database: Database) -> list[int]:
    """Who was admitted, in the order of the logs."""
    async with database.reading() as tx:
        return await tx.fetch_column(
            "SELECT execution_id FROM admission_log WHERE op = 'admit' ORDER BY at, line_id, n"
        )


async def counters(database: Database) -> list[tuple[int, int]]:
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT active, waiting FROM line ORDER BY id")
    return [(row["active"], row["waiting"]) for row in rows]


async def end_and_release(database: Database, worker: TestWorker, ids: list[int]) -> None:
    await end(database, worker, ids)
    await release(database, ids)


async def test_with_a_limit_of_two_five_are_admitted_in_the_order_they_came(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 2})
    worker = await make_worker(database)
    a, b, c, d, e = [(await request(database))[0] for _ in range(5)]

    await admit(database)
    assert await statuses(database, [a, b, c, d, e]) == ["scheduled", "scheduled", "queued", "queued", "queued"]
    for ended, expected in [(a, [a, b, c]), (c, [a, b, c, d]), (b, [a, b, c, d, e])]:
        await end(database, worker, [ended])
        await release(database, [ended])
        assert await admitted(database) == expected
    await nothing_is_broken(database)


async def test_releasing_twice_changes_nothing(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database)
    ids = await request(database, count=4)
    await admit(database)
    await end(database, worker, ids[:1])

    await asyncio.gather(*(release(database, ids[:1]) for _ in range(5)))

    assert await counters(database) == [(1, 2)]
    assert await admitted(database) == ids[:2]
    await nothing_is_broken(database)


async def test_replicas_that_admit_at_once_never_exceed_the_limit(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 3})
    await make_worker(database, capacity=50)
    ids = await request(database, count=20)

    assert sum(await asyncio.gather(*(admit(database) for _ in range(8)))) == 3

    assert await admitted(database) == ids[:3]
    await nothing_is_broken(database)


async def test_a_cancelled_head_gives_way_to_the_next(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    await make_worker(database)
    ids = await request(database, count=4)
    for cancelled in ids[:2]:
        async with database.transaction() as tx:
            await cancel_execution(tx, cancelled, actor="ana")

    await admit(database)

    assert await statuses(database, ids) == ["cancelled", "cancelled", "scheduled", "queued"]
    await release(database, ids[:2])
    assert await counters(database) == [(1, 1)]
    await nothing_is_broken(database)


async def test_a_step_that_stops_among_cancelled_heads_has_somebody_look_again(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    await make_worker(database)
    ids = await request(database, count=6)
    for cancelled in ids[:5]:
        async with database.transaction() as tx:
            await cancel_execution(tx, cancelled, actor="ana")
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    assert await admit(database) == 0
    await release(database, ids[:5])

    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM outbox WHERE topic = 'line.changed'") == 1
    assert await admit(database) == 1


async def test_cancelling_in_line_frees_no_slot(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    await make_worker(database)
    ids = await request(database, count=3)
    await admit(database)
    async with database.transaction() as tx:
        await cancel_execution(tx, ids[1], actor="ana")
    await release(database, [ids[1]])

    assert await statuses(database, ids) == ["scheduled", "cancelled", "queued"]
    assert await counters(database) == [(1, 1)]


async def test_each_group_has_its_own_line_and_its_own_order(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1, "parameters": ["host.name"]})
    worker = await make_worker(database, capacity=50)
    by_host = {
        host: [(await request(database, parameters={"host": {"name": host}}))[0] for _ in range(3)]
        for host in ("a", "b", "c")
    }

    await admit(database)

    assert await counters(database) == [(1, 2)] * 3
    assert sorted(await admitted(database)) == sorted(ids[0] for ids in by_host.values())
    for place_in_line in range(3):
        await end_and_release(database, worker, [ids[place_in_line] for ids in by_host.values()])
    order = await admitted(database)
    assert all([each for each in order if each in ids] == ids for ids in by_host.values())


async def test_a_packs_limit_is_one_line_over_all_its_actions(database: Database) -> None:
    await make_action(database)
    await make_action(database, "demo.other")
    await make_policy(database, scope={"pack": "demo"}, concurrency={"limit": 3})
    worker = await make_worker(database, capacity=50)
    ids = [(await request(database, ref))[0] for _ in range(4) for ref in ("demo.work", "demo.other")]

    await admit(database)

    assert await counters(database) == [(3, 5)]
    assert await admitted(database) == ids[:3]
    for execution_id in ids:
        await end_and_release(database, worker, [execution_id])
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT max(active) FROM admission_log WHERE op = 'admit'") == 3
    assert await admitted(database) == ids


async def test_priority_goes_first_and_equals_keep_their_order(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 4})
    await make_worker(database, capacity=50)
    low = await request(database, count=2)
    high = await request(database, count=2, priority=5)

    await admit(database)

    assert await admitted(database) == [*high, *low]


async def test_a_full_line_refuses_the_whole_request(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1}, max_queue_length=3)
    await request(database, count=2)

    with pytest.raises(QueueFull, match=r"^Queue full \(max length: 3\)$"):
        await request(database, count=2)

    assert await counters(database) == [(0, 2)]
    await request(database)


async def test_the_method_cancel_records_what_it_refuses_and_names_the_policy(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 2, "method": "cancel"})

    ids = await request(database, count=4)

    assert await statuses(database, ids) == ["queued", "queued", "cancelled", "cancelled"]
    async with database.reading() as tx:
        error = await tx.fetch_value("SELECT error FROM execution WHERE id = $1", ids[3])
        told = await tx.fetch_value("SELECT items FROM outbox WHERE type = 'execution.completed'")
    assert "demo.limit" in error["message"]
    assert [item[0] for item in told] == ids[2:]


async def test_a_quota_cancels_what_exceeds_the_day(database: Database) -> None:
    await make_action(database)
    await make_policy(database, quota={"per_day": 5})

    ids = await request(database, count=6)

    assert await statuses(database, ids) == ["queued"] * 5 + ["cancelled"]


async def test_a_rate_limit_delays_in_order_and_says_when_to_look_again(database: Database) -> None:
    await make_action(database)
    await make_policy(database, rate_limit={"max": 3, "window_seconds": 60, "method": "delay"})
    await make_worker(database, capacity=50)
    ids = await request(database, count=5)

    await admit(database)
    await admit(database)
    assert await admitted(database) == ids[:3]
    async with database.reading() as tx:
        wakes = await tx.fetch_column(
            """
            SELECT extract(epoch FROM not_before - created) FROM outbox
             WHERE topic = 'line.changed' AND not_before > now()
            """
        )
    assert len(wakes) == 1
    assert 55 < wakes[0] <= 61

    async with database.transaction() as tx:
        await tx.execute(
            "UPDATE line SET recent = ARRAY(SELECT at - $1::interval FROM unnest(recent) at)", timedelta(minutes=2)
        )
    await admit(database)
    assert await admitted(database) == ids


async def test_a_rate_limit_that_cancels_names_its_policy(database: Database) -> None:
    await make_action(database)
    await make_policy(database, rate_limit={"max": 2, "window_seconds": 60, "method": "cancel"})

    ids = await request(database, count=3)

    assert await statuses(database, ids) == ["queued", "queued", "cancelled"]
    async with database.reading() as tx:
        error = await tx.fetch_value("SELECT error FROM execution WHERE id = $1", ids[2])
    assert "demo.limit" in error["message"]


async def test_a_paused_line_holds_everybody(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 2})
    await make_worker(database)
    ids = await request(database, count=2)
    async with database.transaction() as tx:
        await tx.execute("UPDATE line SET paused = true")

    assert await admit(database) == 0
    assert await statuses(database, ids) == ["queued", "queued"]


async def test_a_line_admits_nobody_while_no_worker_could_run_its_head(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 2})
    ids = await request(database, count=3)

    assert await admit(database) == 0
    assert await statuses(database, ids) == ["queued"] * 3

    await make_worker(database)
    async with database.reading() as tx:
        woken = await tx.fetch_value(
            """
            SELECT count(*) FROM outbox
             WHERE topic = 'line.changed' AND created > (SELECT max(queued_at) FROM execution)
            """
        )
    assert woken == 1
    assert await admit(database) == 2


async def test_a_lowered_limit_kills_nobody_and_holds_until_enough_have_ended(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 3})
    worker = await make_worker(database, capacity=50)
    ids = await request(database, count=6)
    await admit(database)
    async with database.transaction() as tx:
        await tx.execute("UPDATE policy SET max_concurrent = 1")

    await end(database, worker, ids[:2])
    await release(database, ids[:2])
    assert await admitted(database) == ids[:3]
    await end(database, worker, ids[2:3])
    await release(database, ids[2:3])
    assert await admitted(database) == ids[:4]
    await nothing_is_broken(database)


@pytest.mark.parametrize(("on_retry", "order"), [("front", [0, 0, 1, 2]), ("back", [0, 1, 2, 0])])
async def test_a_delayed_retry_leaves_its_slot_and_comes_back_to_its_place(
    database: Database, on_retry: str, order: list[int]
) -> None:
    await make_action(database, retry=RetryPolicy(max_attempts=2, delay_seconds=0.001))
    await make_policy(database, concurrency={"limit": 1}, on_retry=on_retry)
    worker = await make_worker(database)
    ids = await request(database, count=3)
    await admit(database)

    await end(database, worker, ids[:1], FAILED)
    assert await counters(database) == [(0, 2)]
    await place(database, ids[:1])
    for _ in range(3):
        await admit(database)
        async with database.reading() as tx:
            running = await tx.fetch_column("SELECT execution_id FROM assignment")
        await end(database, worker, running)
        await release(database, running)

    assert await admitted(database) == [ids[position] for position in order]
    assert await statuses(database, ids) == ["succeeded"] * 3
    await nothing_is_broken(database)


async def test_a_delayed_retry_that_comes_to_another_line_stands_at_its_end(database: Database) -> None:
    await make_action(database, retry=RetryPolicy(max_attempts=2, delay_seconds=0.001))
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database)
    ids = await request(database)
    await admit(database)
    await end(database, worker, ids, FAILED)
    async with database.transaction() as tx:
        await tx.execute("UPDATE policy SET scope = 'pack:' || pack")
    newcomers = await request(database, count=2)

    await place(database, ids)

    async with database.reading() as tx:
        rows = await tx.fetch("SELECT execution_id, seq FROM line_entry ORDER BY seq")
    assert [tuple(row) for row in rows] == [(newcomers[0], 1), (newcomers[1], 2), (ids[0], 3)]


async def test_acceptance_is_the_order_also_between_racing_requests(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})

    await asyncio.gather(*(request(database, count=3) for _ in range(10)))

    async with database.reading() as tx:
        seqs = await tx.fetch_column("SELECT seq FROM line_entry ORDER BY seq")
        numbers = await tx.fetch_column("SELECT n FROM admission_log ORDER BY n")
    assert seqs == list(range(1, 31))
    assert numbers == list(range(1, 31))


async def test_an_execution_without_a_policy_needs_no_line(database: Database) -> None:
    await make_action(database)

    ids = await request(database)

    assert await statuses(database, ids) == ["requested"]
    assert await counters(database) == []


async def test_a_raised_limit_admits_without_waiting_for_anybody_to_end(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    await make_worker(database, capacity=50)
    ids = await request(database, count=3)
    await admit(database)
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    await make_policy(database, concurrency={"limit": 2})

    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT topic FROM outbox") == ["line.changed"]
    await admit(database)
    assert await admitted(database) == ids[:2]
