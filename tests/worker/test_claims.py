"""A claim whose outcome is not known leads to one start or none, never to two."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from attune.domain.definitions import Runner
from attune.domain.messages import Message, MessageType, dispatch_topic
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.release_executions import release_executions
from attune.operations.start_executions import Claimant
from attune.operations.unplace_executions import hand_back
from attune.runtime.failpoints import arm_failpoints
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.tx import Commit, Tx
from attune.worker.attempts import Attempts, Entry, Stage
from attune.worker.claims import Claims
from tests.witness.arrange import TestWorker, always_half, make_action, make_worker, place, request, start, statuses
from tests.witness.ledger import Ledger, ledger_command
from tests.witness.lines import SUCCESS, admit, make_policy
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker
from tests.worker.test_worker import ended


class Begun:
    """Remembers what was begun instead of running it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def begin(self, entry: Entry) -> None:
        self.entries.append(entry)


def make_claims(
    database: Database, worker: TestWorker, *, capacity: int = 4, buffer: int = 0
) -> tuple[Claims, Attempts, Begun]:
    attempts, begun = Attempts(capacity=capacity, buffer=buffer), Begun()
    claimant = Claimant(worker_id=worker.worker_id, name=worker.name, instance=worker.instance, lease_seconds=30)
    claims = Claims(
        database=database, attempts=attempts, claimant=claimant, begin=begun.begin, slot_freed=asyncio.Event()
    )
    return claims, attempts, begun


def dispatch(worker: TestWorker, ids: list[int], attempt: int = 1) -> Message:
    now = datetime.now(UTC)
    return Message(
        id=1,
        topic=dispatch_topic(worker.worker_id),
        type=MessageType.EXECUTION_DISPATCHED,
        items=tuple((execution_id, attempt) for execution_id in ids),
        deliveries=0,
        created=now,
        not_before=now,
    )


async def somebody_waits_for_a_lock(database: Database) -> bool:
    async with database.reading() as tx:
        return bool(
            await tx.fetch_value(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
        )


@pytest.mark.parametrize("committed", [True, False])
async def test_a_claim_without_an_answer_is_settled_and_begins_once(database: Database, *, committed: bool) -> None:
    await make_action(database)
    worker = await make_worker(database)
    [execution] = await request(database)
    await place(database, [execution])
    claims, attempts, begun = make_claims(database, worker)

    async with database._pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        tx = Tx.on(connection)
        await claims.take_dispatches(tx, [dispatch(worker, [execution])])
        await (transaction.commit() if committed else transaction.rollback())
        tx.end(Commit.UNKNOWN)
    assert begun.entries == []
    async with database.transaction() as again:
        await claims.take_dispatches(again, [dispatch(worker, [execution])])
    assert begun.entries == []

    await claims.settle()

    assert [(entry.key, entry.stage) for entry in begun.entries] == [((execution, 1), Stage.RUNNING)]
    assert attempts.free == 3
    assert await statuses(database, [execution]) == ["running"]


async def test_a_stale_dispatch_beside_the_current_one_begins_nothing(database: Database) -> None:
    """Both in one batch once made the current attempt start twice, the second time under the stale one's number."""
    await make_action(database)
    worker = await make_worker(database)
    [execution] = await request(database)
    await place(database, [execution])
    async with database.transaction() as tx:
        await hand_back(tx, [(execution, 1)], actor="test", reason="placed again")
    async with database.transaction() as tx:
        await release_executions(tx, [], actor="test", draw=always_half)
    claims, attempts, begun = make_claims(database, worker)

    async with database.transaction() as tx:
        await claims.take_dispatches(tx, [dispatch(worker, [execution]), dispatch(worker, [execution], attempt=2)])

    assert [entry.key for entry in begun.entries] == [(execution, 2)]
    assert len(attempts) == 1


async def test_a_commit_that_arrives_late_is_waited_for(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database)
    [execution] = await request(database)
    await place(database, [execution])
    claims, _, begun = make_claims(database, worker)

    async with database._pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        tx = Tx.on(connection)
        await claims.take_dispatches(tx, [dispatch(worker, [execution])])
        tx.end(Commit.UNKNOWN)
        settling = asyncio.create_task(claims.settle())
        await until(lambda: somebody_waits_for_a_lock(database))
        await transaction.commit()
    await settling

    assert [entry.key for entry in begun.entries] == [(execution, 1)]


async def hold_a_line(database: Database) -> tuple[TestWorker, Held, int]:
    """One that runs, and one behind it."""
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    worker = await make_worker(database)
    first, second = await request(database, count=2)
    await admit(database)
    [started] = await start(database, worker, [(first, 1)])
    return worker, Held(execution_id=first, attempt=1, lease=started.lease), second


async def end_and_take_next(tx: Tx, claims: Claims, worker: TestWorker, held: Held) -> None:
    report = Report(held=held, worker_id=worker.worker_id, ending=SUCCESS)
    await finish_executions(tx, [report], actor=worker.name, draw=always_half)
    await claims.take_next(tx, [held.execution_id])


async def test_the_next_that_was_taken_by_a_commit_that_arrives_late_begins_once(database: Database) -> None:
    worker, held, second = await hold_a_line(database)
    claims, _, begun = make_claims(database, worker)

    async with database._pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        tx = Tx.on(connection)
        await end_and_take_next(tx, claims, worker, held)
        tx.end(Commit.UNKNOWN)
        settling = asyncio.create_task(claims.settle())
        await until(lambda: somebody_waits_for_a_lock(database))
        await transaction.commit()
    await settling

    assert [(entry.key, entry.stage) for entry in begun.entries] == [((second, 1), Stage.RUNNING)]


async def test_the_next_that_was_taken_in_vain_is_taken_again_and_begins_once(database: Database) -> None:
    worker, held, second = await hold_a_line(database)
    claims, attempts, begun = make_claims(database, worker)
    async with database._pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        tx = Tx.on(connection)
        await end_and_take_next(tx, claims, worker, held)
        await transaction.rollback()
        tx.end(Commit.UNKNOWN)

    # Nobody knows yet, and the end is reported again.
    async with database.transaction() as again:
        await end_and_take_next(again, claims, worker, held)
    assert await statuses(database, [held.execution_id, second]) == ["succeeded", "scheduled"]
    await claims.settle()

    assert [(entry.key, entry.stage) for entry in begun.entries] == [((second, 1), Stage.RUNNING)]
    assert len(attempts) == 1
    assert await statuses(database, [second]) == ["running"]


async def test_an_unsettled_claim_that_was_taken_away_never_begins(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database)
    [execution] = await request(database)
    await place(database, [execution])
    claims, attempts, begun = make_claims(database, worker)
    async with database._pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        tx = Tx.on(connection)
        await claims.take_dispatches(tx, [dispatch(worker, [execution])])
        await transaction.commit()
        tx.end(Commit.UNKNOWN)
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET lease = gen_random_uuid()")

    await claims.settle()

    assert begun.entries == []
    assert len(attempts) == 0


async def test_a_claim_that_was_rolled_back_begins_when_its_message_comes_again(
    database: Database, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    command = ledger_command(ledger.path, body="true")
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    worker = await start_worker_here()
    [execution] = await request(database, "demo.shell")
    arm_failpoints("consume.before_commit=raise@1")
    try:
        await place(database, [execution])
        await until(lambda: ended(database, [execution]))
    finally:
        arm_failpoints("")
    assert await statuses(database, [execution]) == ["succeeded"]
    assert ledger.starts() == [(execution, 1)]
    assert len(worker.attempts) == 0


async def test_native_work_beyond_the_slots_waits_and_the_rest_goes_back(database: Database) -> None:
    await make_action(database)
    worker = await make_worker(database, capacity=8)
    ids = await request(database, count=5)
    await place(database, ids)
    claims, attempts, begun = make_claims(database, worker, capacity=2, buffer=1)

    async with database.transaction() as tx:
        await claims.take_dispatches(tx, [dispatch(worker, ids)])

    assert [entry.key[0] for entry in begun.entries] == ids[:2]
    assert attempts.waiting == 1
    assert await statuses(database, ids) == ["running", "running", "scheduled", "scheduling", "scheduling"]
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT marked_full FROM worker") is True

    tending = asyncio.create_task(claims.tend())
    try:
        attempts.drop(begun.entries[0])
        claims.wake()

        async def third_begins() -> bool:
            return [entry.key[0] for entry in begun.entries] == ids[:3]

        await until(third_begins)
    finally:
        tending.cancel()


async def test_pinned_work_waits_for_a_slot_and_is_never_given_back(database: Database) -> None:
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command="true")
    worker = await make_worker(database)
    ids = await request(database, "demo.shell", count=3, worker_id=worker.worker_id)
    await place(database, ids)
    claims, attempts, begun = make_claims(database, worker, capacity=1)

    async with database.transaction() as tx:
        await claims.take_dispatches(tx, [dispatch(worker, ids)])

    assert len(begun.entries) == 1
    assert attempts.waiting == 2
    assert await statuses(database, ids) == ["running", "scheduled", "scheduled"]
