"""Workers that die at every step of an attempt: each is started once per attempt, and all of them end."""

from __future__ import annotations

import asyncio
import signal

import pytest

from attune.domain.definitions import RetryPolicy, RetryReason, Runner
from attune.operations.access.write_audit import Actor
from attune.operations.cancel_execution import cancel_execution
from attune.operations.workers.quarantine_actions import release_action
from attune.storage.database import Database
from tests.witness.arrange import make_action, request, statuses
from tests.witness.fleet import Fleet
from tests.witness.ledger import Ledger, ledger_command
from tests.witness.lines import make_policy, nothing_is_broken
from tests.witness.waiting import until

DIE_SECONDS = 120.0
END_SECONDS = 120.0
COUNT = 3
FLEET_CAPACITY = 4
# It talks for so long that its output is stored before its end.
BODY = "echo talk >&2; sleep 0.6"
EACH = 2
POINTS = (
    "worker.claim.before_commit",
    "worker.spawned.before_watch",
    "logs.chunks.after_commit",
    "worker.hand_on.before_commit",
    "worker.finish.after_commit",
)


@pytest.mark.timeout(400)
async def test_workers_that_die_at_every_step_start_no_attempt_twice(database: Database, fleet: Fleet) -> None:
    ledger = Ledger(fleet.home / "ledger.txt")
    ledger.create()
    await make_repeatable(database, "demo.work", ledger_command(ledger.path, body=BODY))
    await make_policy(database, concurrency={"limit": EACH * len(POINTS)})
    doomed = {
        point: await fleet.start_worker(f"doomed-{number}", capacity=EACH, failpoints=f"{point}=kill")
        for number, point in enumerate(POINTS)
    }
    ids = await request(database, count=2 * EACH * len(POINTS))

    async def all_died() -> bool:
        await let_go_on(database)
        return all(process.returncode is not None for process in doomed.values())

    await until(all_died, seconds=DIE_SECONDS)
    assert {process.returncode for process in doomed.values()} == {-signal.SIGKILL}
    await fleet.start_worker()

    async def all_succeeded() -> bool:
        await let_go_on(database)
        return set(await statuses(database, ids)) == {"succeeded"}

    await until(all_succeeded, seconds=END_SECONDS)
    assert ledger.doubled_starts() == []
    await until(lambda: is_quiet(database), seconds=END_SECONDS)
    await nothing_is_broken(database)


async def let_go_on(database: Database) -> None:
    """An action that loses worker after worker is held until a person says otherwise."""
    async with database.transaction() as tx:
        if await tx.fetch_value("SELECT quarantined_at IS NOT NULL FROM action WHERE ref = 'demo.work'"):
            await release_action(tx, "demo.work", by=Actor(name="ana"))


async def test_a_worker_that_dies_while_it_ends_an_action_leaves_none_of_it_running(
    database: Database, fleet: Fleet
) -> None:
    ledger = Ledger(fleet.home / "ledger.txt")
    ledger.create()
    # It does not let itself be asked.
    await make_repeatable(database, "demo.work", ledger_command(ledger.path, body="trap '' TERM; sleep 300 & wait"))
    doomed = await fleet.start_worker(failpoints="worker.stop.before_kill=kill")
    [execution] = await request(database)

    async def started() -> bool:
        return ledger.starts() == [(execution, 1)]

    await until(started, seconds=END_SECONDS)
    async with database.transaction() as tx:
        await cancel_execution(tx, execution, actor="ana")
    async with asyncio.timeout(DIE_SECONDS):
        assert await doomed.wait() == -signal.SIGKILL
    await fleet.start_worker()

    await fleet.until_all([execution], "cancelled", seconds=END_SECONDS)
    assert ledger.starts() == [(execution, 1)]


@pytest.mark.parametrize("point", ["worker.drain.before_hand_back", "worker.drain.before_leave"])
async def test_a_worker_that_dies_while_it_drains_keeps_nobody_waiting(
    database: Database, fleet: Fleet, point: str
) -> None:
    await make_action(database)
    doomed = await fleet.start_worker(failpoints=f"{point}=kill")
    await fleet.until_all(await request(database), "succeeded")
    doomed.terminate()
    async with asyncio.timeout(DIE_SECONDS):
        assert await doomed.wait() == -signal.SIGKILL
    ids = await request(database, count=COUNT)
    await fleet.start_worker("worker-2")

    await fleet.until_all(ids, "succeeded", seconds=END_SECONDS)


async def test_when_the_launcher_dies_while_it_starts_an_action_the_worker_goes_on(
    database: Database, fleet: Fleet
) -> None:
    await make_repeatable(database, "demo.work", "true")
    # More often than a worker asks at its start, to see what its machine has.
    await fleet.start_worker(failpoints="launcher.asked.before_answer=drop@20")
    ids = await request(database, count=25)

    async def all_ended() -> bool:
        return set(await statuses(database, ids)) <= {"succeeded", "failed"}

    await until(all_ended, seconds=END_SECONDS)
    assert (await statuses(database, ids)).count("succeeded") >= len(ids) - FLEET_CAPACITY
    async with database.reading() as tx:
        codes = await tx.fetch_column("SELECT DISTINCT error ->> 'code' FROM execution WHERE status = 'failed'")
    # The one that was being started, and what ran beside it; some may just have ended.
    assert set(codes) <= {"launcher_lost"}


async def make_repeatable(database: Database, ref: str, command: str) -> None:
    await make_action(
        database,
        ref,
        runner=Runner.SHELL,
        entry_point=None,
        command=command,
        idempotent=True,
        retry=RetryPolicy(max_attempts=20, retry_on=frozenset({RetryReason.WORKER_LOST})),
    )


async def is_quiet(database: Database) -> bool:
    async with database.reading() as tx:
        return not await tx.fetch_value(
            "SELECT (SELECT count(*) FROM line_entry) + (SELECT count(*) FROM outbox WHERE topic NOT LIKE '%.worker.%')"
        )
