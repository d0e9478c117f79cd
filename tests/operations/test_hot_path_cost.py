"""What it costs to let an execution through does not depend on how many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from attune.domain.retry import Ending, Outcome
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.place_requested import place_requested
from attune.operations.release_executions import release_executions
from attune.operations.start_executions import start_executions
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.tx import Tx
from tests.witness.arrange import MAX_QUEUE_LENGTH, TestWorker, always_half, make_action, make_worker, request, statuses
from tests.witness.arrange_lines import make_policy
from tests.witness.past import count_read, make_past

ENDED = 20_000
WAITING = 2_000
COUNT = 10
# Many times what ten executions need, and a small part of what there is.
READ_MAX = 500
SUCCESS = Ending(outcome=Outcome.SUCCEEDED, result={"n": 1})


async def test_no_step_of_an_execution_reads_more_the_more_there_are(database: Database) -> None:
    """Plans are made while a database is young, and kept when it has grown."""
    await make_action(database)
    await make_policy(database, "demo.limit", "demo.work", queue_timeout_seconds=None)
    worker = await make_worker(database)
    await _let_through(database, worker)
    async with database.snapshot(application="past") as tx:
        await make_past(tx, ended=ENDED, waiting=WAITING)

    assert await _let_through(database, worker) == {}


async def _let_through(database: Database, worker: TestWorker) -> dict[str, dict[str, int]]:
    """Executions from their acceptance to their end; which steps read too much, and of what."""
    read: dict[str, dict[str, int]] = {}

    async def step(name: str, do: Callable[..., Awaitable[object]], *arguments: object) -> None:
        async with database.transaction() as tx:
            before = await count_read(tx)
            await do(tx, *arguments)
            much = {each: count for each, count in (await count_read(tx) - before).items() if count > READ_MAX}
            if much:
                read[name] = much

    ids = await request(database, count=COUNT)
    await step("place", _place, ids)
    await step("admit", _admit, ids)
    for number in range(0, COUNT, 2):
        running = ids[number : number + 2]
        await step("start", _start, worker, running)
        await step("finish", _finish, worker, running)
        await step("release", _release, running)
    assert await statuses(database, ids) == ["succeeded"] * COUNT
    return read


async def _place(tx: Tx, ids: Sequence[int]) -> None:
    await place_requested(tx, ids, max_queue_length=MAX_QUEUE_LENGTH, actor="test", draw=always_half)


async def _admit(tx: Tx, ids: Sequence[int]) -> None:
    lines = await tx.fetch_column("SELECT DISTINCT line_id FROM execution WHERE id = ANY($1)", ids)
    assert await admit_waiting(tx, lines, actor="test", draw=always_half) == 2


async def _start(tx: Tx, worker: TestWorker, ids: Sequence[int]) -> None:
    started = await start_executions(tx, [(each, 1) for each in ids], claimant=worker.claimant)
    assert len(started) == len(ids)


async def _finish(tx: Tx, worker: TestWorker, ids: Sequence[int]) -> None:
    rows = await tx.fetch("SELECT execution_id, attempt, lease FROM assignment WHERE execution_id = ANY($1)", ids)
    reports = [Report(held=Held(**dict(row)), worker_id=worker.worker_id, ending=SUCCESS) for row in rows]
    assert await finish_executions(tx, reports, actor="test", draw=always_half) == [True] * len(ids)


async def _release(tx: Tx, ids: Sequence[int]) -> None:
    await release_executions(tx, ids, actor="test", draw=always_half)
