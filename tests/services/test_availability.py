"""Workers that stop, hang, die or are busy: what becomes of their work, on both transports."""

from __future__ import annotations

from attune.domain.definitions import Runner
from attune.operations.access.write_audit import Actor
from attune.operations.workers.cordon_worker import uncordon_worker
from attune.operations.workers.drain_worker import drain_worker
from attune.storage.database import Database
from tests.witness.arrange import make_action, make_worker, request, statuses
from tests.witness.fleet import Fleet
from tests.witness.lines import nothing_is_broken
from tests.witness.waiting import until

ANA = Actor(name="ana")


async def make_shell(database: Database, ref: str, command: str, **changes: object) -> None:
    await make_action(database, ref, runner=Runner.SHELL, entry_point=None, command=command, **changes)


async def errors_of(database: Database, ids: list[int]) -> set[str]:
    async with database.reading() as tx:
        return set(await tx.fetch_column("SELECT error ->> 'code' FROM execution WHERE id = ANY($1)", ids))


async def test_what_a_killed_worker_ran_goes_elsewhere_if_it_may_and_fails_if_not(
    database: Database, fleet: Fleet
) -> None:
    await make_shell(database, "demo.again", "sleep 300", idempotent=True)
    await make_shell(database, "demo.once", "sleep 300")
    worker = await fleet.start_worker(capacity=20)
    again, once = await request(database, "demo.again", count=10), await request(database, "demo.once", count=10)
    await fleet.until_all(again + once, "running")
    await fleet.start_worker("worker-2", capacity=20)

    worker.kill()
    await fleet.until_all(once, "failed")
    await fleet.until_all(again, "running")

    assert await errors_of(database, once) == {"worker_lost"}
    async with database.reading() as tx:
        rows = await tx.fetch(
            "SELECT DISTINCT e.attempt, e.tries, w.name FROM execution e JOIN worker w ON w.id = e.worker"
            " WHERE e.id = ANY($1)",
            again,
        )
    assert [tuple(row) for row in rows] == [(2, 2, "worker-2")]
    await nothing_is_broken(database)


async def test_what_a_worker_never_picks_up_fails_by_the_timeout(database: Database, fleet: Fleet) -> None:
    await make_action(database)
    ids = await request(database, count=3)
    await fleet.until_all(ids, "scheduling")
    await make_worker(database, heartbeat_interval=300)
    await fleet.until_all(ids, "scheduled")
    async with database.transaction() as tx:
        # It has not answered for as long as a worker may be silent, though its heartbeats go on.
        await tx.execute("UPDATE worker SET status = 'unresponsive', awaited_since = now() - interval '1 hour'")

    await fleet.until_all(ids, "failed")

    assert await errors_of(database, ids) == {"scheduled_timeout"}
    async with database.reading() as tx:
        result = await tx.fetch_value("SELECT result FROM execution WHERE id = $1", ids[0])
    assert result == {
        "error": "Execution timeout: worker did not pick up task within timeout",
        "failed_by": "execution_timeout_monitor",
    }


async def test_a_worker_that_stops_gracefully_gives_back_finishes_and_gets_nothing_more(
    database: Database, fleet: Fleet
) -> None:
    go = fleet.home / "go"
    await make_shell(database, "demo.work", f"while [ ! -e {go} ]; do sleep 0.05; done")
    worker = await fleet.start_worker()
    running = await request(database, count=4)
    await fleet.until_all(running, "running")

    worker.terminate()
    await fleet.until_worker("worker-1", "draining")
    # The worker still lives, but it takes nothing: there is nobody.
    late = await request(database, grace_seconds=0)
    assert await statuses(database, late) == ["failed"]
    go.touch()

    assert await worker.wait() == 0
    await fleet.until_all(running, "succeeded")
    await fleet.until_worker("worker-1", "inactive")
    gone = await request(database, grace_seconds=0)
    async with database.reading() as tx:
        message = await tx.fetch_value("SELECT error ->> 'message' FROM execution WHERE id = $1", gone[0])
    assert message == "no workers available: no worker is alive"


async def test_a_hung_consumer_is_taken_out_though_heartbeats_go_on_and_comes_back_by_itself(
    database: Database, fleet: Fleet
) -> None:
    await make_action(database)
    await fleet.start_worker(failpoints="worker.control=sleep:4@1")

    await fleet.until_worker("worker-1", "unresponsive")
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT now() - last_heartbeat < interval '3 seconds' FROM worker")
    await fleet.until_worker("worker-1", "active")

    await fleet.until_all(await request(database), "succeeded")


async def test_a_drained_worker_is_emptied_and_goes_on_when_it_is_let_back_in(database: Database, fleet: Fleet) -> None:
    go = fleet.home / "go"
    await make_shell(database, "demo.work", f"while [ ! -e {go} ]; do sleep 0.05; done")
    await fleet.start_worker()
    running = await request(database, count=4)
    await fleet.until_all(running, "running")
    async with database.reading() as tx:
        worker_id = await tx.fetch_value("SELECT id FROM worker")

    await drain_worker(database, worker_id, by=ANA)
    late = await request(database)
    await fleet.until_all(late, "scheduling")
    go.touch()
    await fleet.until_all(running, "succeeded")
    assert await statuses(database, late) == ["scheduling"]

    async with database.transaction() as tx:
        await uncordon_worker(tx, worker_id, by=ANA)
    await fleet.until_all(late, "succeeded")


async def test_a_busy_worker_with_long_actions_makes_nobody_fail(database: Database, fleet: Fleet) -> None:
    await make_action(database, "demo.long", entry_point="sleep")
    await fleet.start_worker(capacity=4)

    # Longer than the scheduled timeout: what waits in the worker's buffer is given back before it runs out.
    ids = await request(database, "demo.long", count=5, parameters={"seconds": 4})

    await fleet.until_all(ids, "succeeded")
    async with database.reading() as tx:
        suspicious = await tx.fetch_value(
            "SELECT count(*) FROM execution_history WHERE actor = 'execution_timeout_monitor'"
        )
        assert suspicious == 0
        assert await tx.fetch_column("SELECT DISTINCT placements FROM execution") == [0]


async def test_what_is_more_than_a_worker_can_hold_is_given_back_at_once(database: Database, fleet: Fleet) -> None:
    go = fleet.home / "go"
    await make_shell(database, "demo.work", f"while [ ! -e {go} ]; do sleep 0.05; done")
    await fleet.start_worker(capacity=2)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET capacity = 6")

    ids = await request(database, count=6)

    async def settled() -> bool:
        return sorted(await statuses(database, ids)) == ["running"] * 2 + ["scheduling"] * 4

    await until(settled)
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT marked_full FROM worker")
        assert await tx.fetch_value("SELECT max(placements) FROM execution WHERE status = 'scheduling'") == 0
    go.touch()
    await fleet.until_all(ids, "succeeded")
