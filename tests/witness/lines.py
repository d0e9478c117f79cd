"""Lines in tests: policies, and what executors and workers do about those who wait."""

from __future__ import annotations

from collections.abc import Sequence

from attune.domain.definition_documents import policy_from_mapping
from attune.domain.definitions import PolicyDefinition
from attune.domain.execution import Failure
from attune.domain.retry import Ending, Outcome
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.install_pack import save_policies
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.release_executions import release_executions
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.upkeep.checkpoints import EVERYTHING
from attune.storage.upkeep.invariants import INVARIANTS, find_violations
from tests.witness.arrange import TestWorker, always_half, start

SUCCESS = Ending(outcome=Outcome.SUCCEEDED)
FAILED = Ending(outcome=Outcome.FAILED, failure=Failure(code="exit_code", message="exited with 1", by="test"))


async def make_policy(database: Database, **document: object) -> None:
    """A policy for everything in the pack `demo`, unless the document says otherwise."""
    document = {"ref": "demo.limit", "scope": {"action": "demo.work"}} | document
    policy: PolicyDefinition = policy_from_mapping(document)
    async with database.transaction() as tx:
        pack_id = await tx.fetch_value("SELECT id FROM pack WHERE ref = 'demo'")
        await save_policies(tx, pack_id, [policy], adhoc=True)


async def admit(database: Database, *, ended: Sequence[int] = ()) -> int:
    """What an executor does with every line there is."""
    async with database.transaction() as tx:
        lines = await tx.fetch_column("SELECT id FROM line")
        return await admit_waiting(tx, lines, ended=ended, actor="executor test", draw=always_half)


async def end(database: Database, worker: TestWorker, ids: Sequence[int], ending: Ending = SUCCESS) -> None:
    """Run executions that are scheduled to their end, without releasing what they held."""
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT id, attempt FROM execution WHERE id = ANY($1)", ids)
    started = await start(database, worker, [(row["id"], row["attempt"]) for row in rows])
    reports = [
        Report(
            held=Held(execution_id=item.startable.execution_id, attempt=item.startable.attempt, lease=item.lease),
            worker_id=worker.worker_id,
            ending=ending,
        )
        for item in started
    ]
    assert len(reports) == len(ids)
    async with database.transaction() as tx:
        await finish_executions(tx, reports, actor="worker test", draw=always_half)


async def release(database: Database, ids: Sequence[int]) -> None:
    async with database.transaction() as tx:
        await release_executions(tx, ids, actor="executor test", draw=always_half)


async def nothing_is_broken(database: Database) -> None:
    async with database.snapshot(application="witness") as tx:
        for invariant in INVARIANTS:
            assert await find_violations(tx, invariant, EVERYTHING) == (0, []), invariant.name
