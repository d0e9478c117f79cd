"""Cancelling against everything that can happen at the same moment: exactly one outcome, and nothing is left.

The long form: `make test ARGS="tests/races --rounds 1000"`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from attune.domain.definitions import RetryPolicy, RetryReason
from attune.domain.endings.dead_letters import Expiry
from attune.domain.execution import TERMINAL, Failure
from attune.domain.retry import Ending, Outcome
from attune.operations.cancel_execution import cancel_execution
from attune.operations.dead_letters.bury_dead_letters import bury_dead_letters
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.release_executions import release_executions
from attune.operations.rescue_lost import rescue_lost
from attune.operations.upkeep.check_invariants import check_invariants
from attune.storage.assignments import Held
from attune.storage.database import Database
from tests.plugins.rounds import Rounds
from tests.witness.arrange import TestWorker, always_half, make_action, make_worker, place, request, start, statuses

CANCEL_ROUNDS = 30
SUCCESS = Ending(outcome=Outcome.SUCCEEDED)
FAILURE = Ending(outcome=Outcome.FAILED, failure=Failure(code="exit_code", message="exited with 3", by="test"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Where the races of one test are run."""

    database: Database
    worker: TestWorker
    dice: random.Random
    force: bool

    async def at_once(self, *steps: Awaitable[object]) -> None:
        """Take steps together, each after a pause too short to know who comes first."""

        async def late(step: Awaitable[object]) -> None:
            await asyncio.sleep(self.dice.random() * 0.004)
            await step

        await asyncio.gather(*(late(step) for step in steps))

    async def cancel(self, execution: int) -> None:
        async with self.database.transaction() as tx:
            await cancel_execution(tx, execution, actor="ana", force=self.force)

    async def finish(self, held: Held, ending: Ending) -> None:
        report = Report(held=held, worker_id=self.worker.worker_id, ending=ending)
        async with self.database.transaction() as tx:
            await finish_executions(tx, [report], actor=self.worker.name, draw=always_half)

    async def scheduled(self) -> int:
        [execution] = await request(self.database)
        await place(self.database, [execution])
        return execution

    async def started(self, execution: int, attempt: int = 1) -> Held | None:
        begun = await start(self.database, self.worker, [(execution, attempt)])
        return Held(execution_id=execution, attempt=attempt, lease=begun[0].lease) if begun else None

    async def running(self) -> Held:
        held = await self.started(await self.scheduled())
        assert held is not None
        return held

    async def expire_lease(self, execution: int) -> None:
        async with self.database.transaction() as tx:
            await tx.execute(
                "UPDATE assignment SET lease_until = now() - interval '1 hour' WHERE execution_id = $1", execution
            )

    async def rescue(self) -> None:
        async with self.database.transaction() as tx:
            await rescue_lost(tx, placements_max=5, draw=always_half)


Race = Callable[[Course], Awaitable[int]]


async def against_start(course: Course) -> int:
    execution = await course.scheduled()
    begun: list[Held | None] = []

    async def begin() -> None:
        begun.append(await course.started(execution))

    await course.at_once(begin(), course.cancel(execution))
    [status] = await statuses(course.database, [execution])
    assert (begun[0] is None or course.force) == (status == "cancelled")
    if begun[0] is not None:
        await course.finish(begun[0], FAILURE)
    return execution


async def against_finish(course: Course) -> int:
    held = await course.running()
    await course.at_once(course.finish(held, SUCCESS), course.cancel(held.execution_id))
    return held.execution_id


async def against_retry(course: Course) -> int:
    held = await course.running()
    await course.at_once(course.finish(held, FAILURE), course.cancel(held.execution_id))
    return held.execution_id


async def against_loss(course: Course) -> int:
    held = await course.running()
    await course.expire_lease(held.execution_id)
    await course.at_once(course.rescue(), course.cancel(held.execution_id))
    return held.execution_id


EXPECTED: dict[Race, set[str]] = {
    against_start: {"cancelled"},
    against_finish: {"succeeded"},
    against_retry: {"cancelled"},
    against_loss: {"cancelled"},
}


async def run(course: Course, race: Race, count: int) -> list[int]:
    """So many rounds, one after the other: who is to be tried again in one would hold up the next."""
    return [await race(course) for _ in range(count)]


async def make_course(database: Database, *, force: bool = False) -> Course:
    again = RetryPolicy(max_attempts=3, retry_on=frozenset({RetryReason.FAILED, RetryReason.WORKER_LOST}))
    await make_action(database, idempotent=True, retry=again)
    worker = await make_worker(database, capacity=10_000)
    async with database.transaction() as tx:
        # It lives as long as the test, however slow the machine.
        await tx.execute("UPDATE worker SET last_heartbeat = now() + interval '1 day'")
    return Course(database=database, worker=worker, dice=random.Random(7), force=force)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("force", [False, True], ids=["asked", "forced"])
@pytest.mark.parametrize("race", EXPECTED, ids=lambda race: str(race.__name__))
async def test_a_cancel_and_what_races_it_have_exactly_one_outcome(
    database: Database, rounds: Rounds, race: Race, *, force: bool
) -> None:
    course = await make_course(database, force=force)
    ids = await run(course, race, rounds(CANCEL_ROUNDS))
    async with database.transaction() as tx:
        await release_executions(tx, ids, actor="executor test", draw=always_half)
        # Nobody here takes messages; in a long run they would look forgotten.
        await tx.execute("DELETE FROM outbox")
        ends = Counter(
            await tx.fetch_column(
                "SELECT execution_id FROM execution_history WHERE to_status = ANY($1)", [str(each) for each in TERMINAL]
            )
        )
        left = await tx.fetch_value("SELECT (SELECT count(*) FROM assignment) + (SELECT count(*) FROM unplaced)")
        attempts = await tx.fetch_value("SELECT max(attempt) FROM execution")

    assert ends == dict.fromkeys(ids, 1)
    allowed = EXPECTED[race] | ({"cancelled"} if force else set())
    assert set(await statuses(database, ids)) <= allowed
    assert left == 0
    assert attempts == 1, "something that was cancelled was tried again"
    async with database.reading() as tx:
        assert [check.name for check in (await check_invariants(tx)).checks if check.violations] == []


TTL_ROUNDS = 50


@pytest.mark.timeout(600)
async def test_a_time_to_live_that_ends_while_the_worker_starts_has_exactly_one_outcome(
    database: Database, rounds: Rounds
) -> None:
    course = await make_course(database)
    seen: Counter[str] = Counter()

    async def race(course: Course) -> int:
        execution = await course.scheduled()
        begun: list[Held | None] = []
        buried: list[str] = []

        async def begin() -> None:
            begun.append(await course.started(execution))

        async def expire() -> None:
            async with database.transaction() as tx:
                buried.extend(await bury_dead_letters(tx, [expiry(execution)], placements_max=5))

        await course.at_once(begin(), expire())
        [status] = await statuses(database, [execution])
        started = begun[0] is not None
        assert (status, buried) == (("running", ["no_effect"]) if started else ("scheduling", ["placed_elsewhere"]))
        seen[status] += 1
        if begun[0] is not None:
            await course.finish(begun[0], SUCCESS)
        await course.cancel(execution)
        return execution

    ids = await run(course, race, rounds(TTL_ROUNDS))
    async with database.reading() as tx:
        twice = await tx.fetch_value(
            "SELECT count(*) FROM (SELECT 1 FROM execution_history WHERE to_status = 'running'"
            " GROUP BY execution_id, attempt HAVING count(*) > 1) doubled"
        )
    assert twice == 0
    assert seen.total() == len(ids)
    assert set(seen) == {"running", "scheduling"}, "the race was no race"


def expiry(execution: int) -> Expiry:
    return Expiry(item=(execution, 1), deaths=("expired",), died_at=datetime(2026, 1, 2, tzinfo=UTC))
