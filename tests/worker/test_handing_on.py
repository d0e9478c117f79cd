"""A slot goes from one execution to the next in the transaction that ends the first, and nothing else changes by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attune.domain.definitions import Runner
from attune.domain.messages import dispatch_topic
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.upkeep.check_invariants import check_invariants
from attune.runtime.failpoints import arm_failpoints
from attune.storage.database import Database
from tests.witness.arrange import always_half, make_action, make_worker, request, statuses
from tests.witness.arrange_lines import make_policy
from tests.witness.ledger import Ledger, ledger_command
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker
from tests.worker.test_worker import ended


@pytest.fixture(autouse=True)
def _disarmed_afterwards() -> Iterator[None]:
    yield
    arm_failpoints("")


async def make_limited(database: Database, *, limit: int, command: str | None = None) -> None:
    if command is None:
        await make_action(database)
    else:
        await make_action(database, runner=Runner.SHELL, entry_point=None, command=command)
    policy = await make_policy(database, "demo.limit", "demo.work", queue_timeout_seconds=None)
    async with database.transaction() as tx:
        await tx.execute("UPDATE policy SET max_concurrent = $2 WHERE id = $1", policy, limit)


async def admit_first(database: Database) -> None:
    """What an executor does when a line has changed; nobody here does it a second time."""
    async with database.transaction() as tx:
        lines = await tx.fetch_column("SELECT id FROM line")
        await admit_waiting(tx, lines, actor="executor test", draw=always_half)


async def violations(database: Database) -> list[str]:
    async with database.transaction() as tx:
        return [check.name for check in (await check_invariants(tx)).checks if check.violations]


async def test_the_next_in_line_starts_in_the_transaction_that_ends_the_one_before(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_limited(database, limit=1)
    await start_worker_here()
    ids = await request(database, count=5)

    await admit_first(database)
    await until(lambda: ended(database, ids))

    async with database.reading() as tx:
        rows = await tx.fetch("SELECT started_at, ended_at FROM execution WHERE id = ANY($1) ORDER BY id", ids)
        told = await tx.fetch_value("SELECT count(*) FROM outbox WHERE type = 'execution.dispatched'")
        moves = await tx.fetch(
            "SELECT from_status, to_status, attempt FROM execution_history WHERE execution_id = $1 ORDER BY id", ids[1]
        )
    assert [row["ended_at"] for row in rows[:-1]] == [row["started_at"] for row in rows[1:]]
    assert told == 0
    assert await statuses(database, ids) == ["succeeded"] * 5
    assert [(row["from_status"], row["to_status"], row["attempt"]) for row in moves] == [
        (None, "queued", 0),
        ("queued", "scheduled", 1),
        ("scheduled", "running", 1),
        ("running", "succeeded", 1),
    ]
    assert await violations(database) == []


async def test_an_end_is_told_unless_its_room_was_taken_again_at_once(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_limited(database, limit=2)
    await start_worker_here()
    ids = await request(database, count=6)

    await admit_first(database)
    await until(lambda: ended(database, ids))

    async with database.reading() as tx:
        told = await tx.fetch("SELECT items FROM outbox WHERE type = 'execution.completed'")
    # Nobody takes messages here. Each of the first four had somebody behind it; the last two leave room.
    assert sorted(item[0] for row in told for item in row["items"]) == ids[-2:]
    assert await violations(database) == []


async def test_what_is_placed_on_another_worker_is_told_to_it(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_limited(database, limit=1, command="sleep 0.3")
    await start_worker_here()
    ids = await request(database, count=2)
    await admit_first(database)
    await until(lambda: _is_running_or_over(database, ids[0]))
    other = await make_worker(database, "worker-2", heartbeat_interval=60)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET cordoned = true WHERE name = 'worker-1'")

    await until(lambda: ended(database, ids[:1]))

    async with database.reading() as tx:
        told = await tx.fetch_column("SELECT topic FROM outbox WHERE type = 'execution.dispatched'")
    assert told == [dispatch_topic(other.worker_id)]
    assert await statuses(database, ids) == ["succeeded", "scheduled"]
    assert await violations(database) == []


@pytest.mark.parametrize("place", ["admit.before_place", "worker.hand_on.before_commit"])
async def test_an_ending_is_reported_even_if_handing_on_goes_wrong(
    database: Database, start_worker_here: StartWorker, tmp_path: Path, place: str
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    ledger.create()
    await make_limited(database, limit=1, command=ledger_command(ledger.path, body="sleep 0.3"))
    await start_worker_here()
    ids = await request(database, count=2)
    await admit_first(database)
    await until(lambda: _is_running_or_over(database, ids[0]))
    arm_failpoints(f"{place}=raise")
    await until(lambda: ended(database, ids[:1]))

    assert await statuses(database, ids) == ["succeeded", "queued"]
    arm_failpoints("")
    async with database.transaction() as tx:
        await admit_waiting(tx, (), ended=ids[:1], actor="executor test", draw=always_half)
    await until(lambda: ended(database, ids))
    assert await statuses(database, ids) == ["succeeded", "succeeded"]
    assert ledger.starts() == [(ids[0], 1), (ids[1], 1)]
    assert await violations(database) == []


async def _is_running_or_over(database: Database, execution_id: int) -> bool:
    return (await statuses(database, [execution_id]))[0] in {"running", "succeeded"}
