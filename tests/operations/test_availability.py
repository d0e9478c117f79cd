"""Who counts as alive when work is accepted, and what becomes of work that nobody alive could run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from attune.domain.definitions import Runner
from attune.domain.endings.dead_letters import Expiry
from attune.operations.access.write_audit import Actor
from attune.operations.attend_workers import begin_drain, mark_worker_lost, renew_leases
from attune.operations.dead_letters.bury_dead_letters import bury_dead_letters
from attune.operations.expire_executions import expire_scheduled
from attune.operations.workers.cordon_worker import cordon_worker
from attune.operations.workers.expire_unserved import expire_unserved
from attune.storage.database import Database
from tests.witness.arrange import GRACE_SECONDS, make_action, make_worker, place, request, start, statuses
from tests.witness.lines import make_policy

# Nobody in these tests goes stale by the slowness of the machine.
PATIENT = 60.0


async def error_of(database: Database, execution_id: int) -> dict[str, str]:
    async with database.reading() as tx:
        found: dict[str, str] = await tx.fetch_value("SELECT error FROM execution WHERE id = $1", execution_id)
        return found


async def expire(database: Database, *, timeout_seconds: float = 3600) -> int:
    async with database.transaction() as tx:
        return await expire_unserved(tx, timeout_seconds=timeout_seconds)


async def let_pass(database: Database, seconds: float) -> None:
    """As if everything that waits for a worker had waited this much longer."""
    async with database.transaction() as tx:
        await tx.execute("UPDATE unplaced SET since = since - make_interval(secs => $1)", seconds)
        await tx.execute("UPDATE execution SET worker_by = worker_by - make_interval(secs => $1)", seconds)


async def test_without_any_worker_a_request_fails_at_once(database: Database) -> None:
    await make_action(database)

    ids = await request(database, count=3, grace_seconds=0)

    assert await statuses(database, ids) == ["failed"] * 3
    error = await error_of(database, ids[0])
    assert (error["code"], error["message"]) == ("no_worker", "no workers available: no worker is alive")
    async with database.reading() as tx:
        told = await tx.fetch("SELECT topic, items FROM outbox")
    assert [(row["topic"], len(row["items"])) for row in told] == [("execution.completed", 3)]


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"runner": Runner.PYTHON, "entry_point": "a.py"}, "no live worker has runtime python"),
        ({"labels": {"zone": "dmz"}}, "no live worker with runtime native has label zone=dmz"),
        ({"isolation": "container"}, "no live worker with runtime native offers isolation container"),
    ],
)
async def test_the_failure_names_what_is_missing(database: Database, changes: dict[str, object], missing: str) -> None:
    await make_action(database, "demo.work", **changes)
    await make_worker(database, heartbeat_interval=PATIENT)

    ids = await request(database, grace_seconds=0)

    assert (await error_of(database, ids[0]))["message"] == f"no workers available: {missing}"


async def test_a_worker_that_is_only_being_started_again_counts_as_alive(database: Database) -> None:
    await make_action(database)
    await make_worker(database, heartbeat_interval=PATIENT)
    async with database.transaction() as tx:
        assert await mark_worker_lost(tx, name="worker-1", pid=1)

    assert await statuses(database, await request(database, grace_seconds=0)) == ["requested"]


COUNTS = {
    "active": "status = 'active'",
    "full": "marked_full = true",
    "silent for a moment": "status = 'unresponsive', awaited_since = now() - interval '1 second'",
    "being started again": "status = 'lost'",
}
DOES_NOT_COUNT = {
    "cordoned": "cordoned = true",
    "drained": "cordoned = true, status = 'draining'",
    "leaving": "leaving = true, status = 'draining'",
    "stopped": "status = 'inactive'",
    "silent for long": "status = 'unresponsive', awaited_since = now() - interval '1 hour'",
    "lost for long": "status = 'lost', last_heartbeat = now() - interval '1 hour'",
}


@pytest.mark.parametrize("state", [*COUNTS, *DOES_NOT_COUNT])
async def test_whoever_fails_work_for_want_of_a_worker_agrees_on_who_counts(database: Database, state: str) -> None:
    await make_action(database)
    await make_worker(database, heartbeat_interval=PATIENT)
    expired, overdue = await request(database, count=2)
    await place(database, [expired, overdue])
    async with database.transaction() as tx:
        change = (COUNTS | DOES_NOT_COUNT)[state]
        await tx.execute(f"UPDATE worker SET {change}")  # noqa: S608  written above
        await tx.execute("UPDATE assignment SET placed_at = now() - interval '10 minutes'")

    [accepted] = await request(database, grace_seconds=0)
    async with database.transaction() as tx:
        letter = Expiry(item=(expired, 1), deaths=(), died_at=datetime(2026, 1, 2, tzinfo=UTC))
        await bury_dead_letters(tx, [letter], placements_max=5)
        await expire_scheduled(tx, timeout_seconds=0, placements_max=5)

    found = await statuses(database, [accepted, expired, overdue])
    assert found == (["requested", "scheduling", "scheduling"] if state in COUNTS else ["failed"] * 3)


@pytest.mark.parametrize(("workers", "said"), [(1, "the only worker"), (2, "each of the 2 workers")])
async def test_a_request_that_only_cordoned_workers_could_run_says_so(
    database: Database, workers: int, said: str
) -> None:
    await make_action(database)
    for number in range(workers):
        worker = await make_worker(database, f"worker-{number}", heartbeat_interval=PATIENT)
        async with database.transaction() as tx:
            await cordon_worker(tx, worker.worker_id, by=Actor(name="ana"))
    await make_worker(database, "another", runtimes=["shell"], heartbeat_interval=PATIENT)

    ids = await request(database, grace_seconds=0)

    message = (await error_of(database, ids[0]))["message"]
    assert message == f"no workers available: {said} that could run it is cordoned"


async def test_what_fails_for_want_of_a_worker_joins_no_line(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})

    await request(database, grace_seconds=0)

    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM line_entry") == 0
        assert await tx.fetch_value("SELECT line_id FROM execution") is None


async def test_who_waits_in_a_line_is_not_burnt_when_the_only_worker_goes(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    ids = await request(database, count=3, grace_seconds=0)
    async with database.transaction() as tx:
        await begin_drain(tx, instance=worker.instance)
    await let_pass(database, 100_000)

    assert await expire(database) == 0
    assert await statuses(database, ids) == ["queued"] * 3


async def test_a_grace_lets_a_worker_come(database: Database) -> None:
    await make_action(database)
    ids = await request(database)
    await place(database, ids)
    assert await expire(database) == 0
    await make_worker(database, heartbeat_interval=PATIENT)
    await let_pass(database, GRACE_SECONDS + 1)

    assert await expire(database, timeout_seconds=100_000) == 0

    assert await statuses(database, ids) == ["scheduling"]
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM execution WHERE worker_by IS NOT NULL") == 0


@pytest.mark.parametrize("limited", [False, True], ids=["no line", "in a line"])
async def test_a_grace_that_is_over_fails_what_still_has_no_worker(database: Database, *, limited: bool) -> None:
    await make_action(database)
    if limited:
        await make_policy(database, concurrency={"limit": 1})
    ids = await request(database, count=2)
    await let_pass(database, GRACE_SECONDS + 1)

    assert await expire(database) == 2

    assert await statuses(database, ids) == ["failed", "failed"]
    assert (await error_of(database, ids[0]))["code"] == "no_worker"


async def test_waiting_for_room_ends_with_the_queue_timeout_only_where_no_worker_is_alive(database: Database) -> None:
    await make_action(database)
    await make_action(database, "demo.elsewhere", labels={"zone": "dmz"})
    await make_worker(database, capacity=1, heartbeat_interval=PATIENT)
    served = await request(database, count=5)
    unserved = await request(database, "demo.elsewhere")
    async with database.transaction() as tx:
        await tx.execute("UPDATE execution SET worker_by = NULL")
    await place(database, [*served, *unserved])
    await let_pass(database, 3601)

    assert await expire(database) == 1

    assert await statuses(database, unserved) == ["failed"]
    assert "failed" not in await statuses(database, served)


async def test_what_is_not_picked_up_fails_only_where_nobody_else_could_take_it(database: Database) -> None:
    await make_action(database)
    await make_worker(database, heartbeat_interval=PATIENT)
    ids = await request(database)
    await place(database, ids)
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET placed_at = now() - interval '10 minutes'")
        await expire_scheduled(tx, timeout_seconds=0, placements_max=5)
    assert await statuses(database, ids) == ["scheduling"]

    await make_worker(database, "other", heartbeat_interval=PATIENT)
    later = await request(database, count=1)
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM unplaced")
    await place(database, later)
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET placed_at = now() - interval '10 minutes'")
        await tx.execute("UPDATE worker SET status = 'unresponsive', awaited_since = now() - interval '10 minutes'")
        await expire_scheduled(tx, timeout_seconds=0, placements_max=5)
    assert await statuses(database, later) == ["failed"]
    async with database.reading() as tx:
        result = await tx.fetch_value("SELECT result FROM execution WHERE id = $1", later[0])
    assert result == {
        "error": "Execution timeout: worker did not pick up task within timeout",
        "failed_by": "execution_timeout_monitor",
    }


async def test_a_worker_that_was_given_up_and_speaks_again_takes_part_again(database: Database) -> None:
    worker = await make_worker(database)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET status = 'lost'")
    async with database.transaction() as tx:
        pulse = await renew_leases(tx, [], instance=worker.instance, lease_seconds=30)
    assert (pulse.status, pulse.revived) == ("active", True)

    async with database.transaction() as tx:
        await begin_drain(tx, instance=worker.instance)
        await tx.execute("UPDATE worker SET status = 'lost'")
        pulse = await renew_leases(tx, [], instance=worker.instance, lease_seconds=30)
    assert (pulse.status, pulse.revived) == ("draining", False)


async def test_a_start_is_not_hindered_by_a_grace(database: Database) -> None:
    await make_action(database)
    ids = await request(database)
    worker = await make_worker(database, heartbeat_interval=PATIENT)
    await place(database, ids)
    await start(database, worker, [(ids[0], 1)])
    await let_pass(database, GRACE_SECONDS + 1)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET status = 'inactive'")

    assert await expire(database) == 0
    assert await statuses(database, ids) == ["running"]
