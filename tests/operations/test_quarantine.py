"""An action that takes its workers down with it is held, and only that action."""

from __future__ import annotations

from attune.domain.retry import Ending, Outcome
from attune.domain.why import explain
from attune.operations.access.write_audit import Actor
from attune.operations.cancel_execution import cancel_execution
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.lines.expire_waiting import expire_waiting
from attune.operations.release_executions import release_executions
from attune.operations.rescue_lost import rescue_lost
from attune.operations.workers.expire_unserved import expire_unserved
from attune.operations.workers.quarantine_actions import release_action
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.views import why
from tests.witness.arrange import TestWorker, always_half, make_action, make_worker, place, request, start, statuses
from tests.witness.lines import make_policy

PATIENT = 60.0
ANA = Actor(name="ana")


async def start_on(database: Database, worker: TestWorker, ref: str = "demo.work", *, count: int = 1) -> list[Held]:
    ids = await request(database, ref, count=count)
    await place(database, ids)
    started = await start(database, worker, [(execution_id, 1) for execution_id in ids])
    return [Held(execution_id=item.startable.execution_id, attempt=1, lease=item.lease) for item in started]


async def lose(database: Database, worker: TestWorker) -> None:
    """The worker dies, and its leases run out."""
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET lease_until = now() - interval '5 minutes'")
        await tx.execute(
            "UPDATE worker SET status = 'lost', heartbeat_interval = 0.2, last_heartbeat = now() - interval '1 minute'"
            " WHERE id = $1",
            worker.worker_id,
        )
    async with database.transaction() as tx:
        await rescue_lost(tx, placements_max=5, draw=always_half)


async def lose_workers(database: Database, number: int, *, first: int = 1, count: int = 1) -> None:
    for position in range(first, first + number):
        worker = await make_worker(database, f"victim-{position}", capacity=50, heartbeat_interval=PATIENT)
        assert await start_on(database, worker, count=count)
        await lose(database, worker)


async def is_quarantined(database: Database, ref: str = "demo.work") -> bool:
    async with database.reading() as tx:
        return bool(await tx.fetch_value("SELECT quarantined_at IS NOT NULL FROM action WHERE ref = $1", ref))


async def place_waiting(database: Database) -> None:
    async with database.transaction() as tx:
        await release_executions(tx, [], actor="executor test", draw=always_half)


async def test_three_workers_lost_in_a_row_hold_an_action(database: Database) -> None:
    await make_action(database)
    await lose_workers(database, 2)
    assert not await is_quarantined(database)
    await lose_workers(database, 1, first=3)
    assert await is_quarantined(database)

    await make_worker(database, "healthy", heartbeat_interval=PATIENT)
    ids = await request(database)
    await place(database, ids)
    await place_waiting(database)

    assert await statuses(database, ids) == ["scheduling"]
    async with database.reading() as tx:
        facts = await why.find_facts(tx, ids[0])
    assert facts is not None
    told = explain(facts)
    assert told.code == "quarantined"
    assert "waits, without a timeout, until `attune action release demo.work`" in told.sentence


async def test_a_worker_counts_once_however_many_executions_it_took_along(database: Database) -> None:
    await make_action(database)
    await lose_workers(database, 1, count=20)

    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT cardinality(lost_workers) FROM action") == 1


async def test_a_success_of_any_attempt_clears_the_count(database: Database) -> None:
    await make_action(database)
    await lose_workers(database, 2)
    worker = await make_worker(database, "healthy", heartbeat_interval=PATIENT)
    [held] = await start_on(database, worker)
    report = Report(held=held, worker_id=worker.worker_id, ending=Ending(outcome=Outcome.SUCCEEDED))
    async with database.transaction() as tx:
        assert await finish_executions(tx, [report], actor="worker test", draw=always_half) == [True]
        await tx.execute("UPDATE worker SET status = 'inactive'")

    await lose_workers(database, 2, first=3)

    assert not await is_quarantined(database)


async def test_others_of_its_pool_are_placed_past_a_held_action(database: Database) -> None:
    await make_action(database)
    await make_action(database, "demo.innocent")
    await lose_workers(database, 3)
    await make_worker(database, "healthy", heartbeat_interval=PATIENT)
    held = await request(database, count=20)
    await place(database, held)

    ids = await request(database, "demo.innocent", count=2)
    await place(database, ids[:1])
    assert await statuses(database, ids[:1]) == ["scheduled"]

    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET marked_full = true")
    await place(database, ids[1:])
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET marked_full = false")
    await place_waiting(database)
    assert await statuses(database, ids[1:]) == ["scheduled"]
    assert set(await statuses(database, held)) == {"scheduling"}


async def test_releasing_lets_what_waits_go_on(database: Database) -> None:
    await make_action(database)
    await lose_workers(database, 3)
    await make_worker(database, "healthy", heartbeat_interval=PATIENT)
    ids = await request(database)
    await place(database, ids)

    for _ in range(2):
        async with database.transaction() as tx:
            await release_action(tx, "demo.work", by=ANA)

    async with database.reading() as tx:
        assert "pool.changed" in await tx.fetch_column("SELECT topic FROM outbox")
        assert await tx.fetch_column("SELECT operation FROM audit_log") == ["action.release"]
    await place_waiting(database)
    assert await statuses(database, ids) == ["scheduled"]


async def test_what_is_held_waits_without_a_timeout_and_can_be_cancelled(database: Database) -> None:
    await make_action(database)
    await lose_workers(database, 3)
    ids = await request(database, count=2)
    await place(database, ids)
    async with database.transaction() as tx:
        await tx.execute("UPDATE unplaced SET since = now() - interval '10 days'")

    async with database.transaction() as tx:
        assert await expire_unserved(tx, timeout_seconds=60) == 0
        await cancel_execution(tx, ids[0], actor="ana")
    assert await statuses(database, ids) == ["cancelled", "scheduling"]

    async with database.transaction() as tx:
        await release_action(tx, "demo.work", by=ANA)
    async with database.transaction() as tx:
        assert await expire_unserved(tx, timeout_seconds=60) == 0, "its time begins with its release"
        await tx.execute("UPDATE action SET released_at = now() - interval '61 seconds'")
        assert await expire_unserved(tx, timeout_seconds=60) == 1


async def test_the_time_in_a_line_stands_still_while_an_action_is_held(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    ids = await request(database)
    async with database.transaction() as tx:
        await tx.execute("UPDATE action SET quarantined_at = now()")
        await tx.execute("UPDATE line_entry SET timeout_from = now() - interval '10 days'")

    async def expire() -> int:
        async with database.transaction() as tx:
            return await expire_waiting(tx, default_seconds=60)

    async def turn_back(seconds: float) -> None:
        async with database.transaction() as tx:
            await tx.execute("UPDATE line_entry SET timeout_from = timeout_from - make_interval(secs => $1)", seconds)
            await tx.execute("UPDATE action SET released_at = released_at - make_interval(secs => $1)", seconds)

    assert await expire() == 0
    await turn_back(59)
    async with database.transaction() as tx:
        await release_action(tx, "demo.work", by=ANA)
    await turn_back(2)
    assert [await expire(), await statuses(database, ids)] == [0, ["queued"]]
    await turn_back(60)
    # The first pass may learn that its time began with the release, the second that it is over.
    assert await expire() + await expire() == 1


async def test_a_held_action_holds_its_line_until_it_is_released(database: Database) -> None:
    await make_action(database)
    await lose_workers(database, 3)
    await make_policy(database, concurrency={"limit": 1})
    await make_worker(database, "healthy", heartbeat_interval=PATIENT)
    ids = await request(database)
    async with database.reading() as tx:
        line_id = await tx.fetch_value("SELECT line_id FROM execution WHERE id = $1", ids[0])
    async with database.transaction() as tx:
        await tx.execute("SELECT admit_lines(ARRAY[$1::bigint], '{}', 10)", line_id)
    assert await statuses(database, ids) == ["queued"]

    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")
    async with database.transaction() as tx:
        await release_action(tx, "demo.work", by=ANA)
    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT topic FROM outbox WHERE topic = 'line.changed'") == ["line.changed"]
