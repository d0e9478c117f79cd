"""Cancelling scripts at any moment of their life: one outcome each, and no process is left."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from uuid import uuid4

import pytest

from attune.domain.definitions import RetryPolicy, Runner
from attune.domain.execution import TERMINAL
from attune.operations.cancel_execution import cancel_execution
from attune.storage.database import Database
from attune.worker.processes import Marking, find_marked
from tests.plugins.rounds import Rounds
from tests.witness.arrange import make_action, place, request, statuses
from tests.witness.ledger import Ledger, ledger_command
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker

ROUNDS = 30
SIDE_BY_SIDE = 5
# A script lives about this long; it is cancelled somewhere between before its start and after its end.
LIFE_SECONDS = 0.1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ending", ["true", "false"], ids=["succeeds", "fails and would be tried again"])
async def test_a_script_that_is_cancelled_at_any_moment_has_one_outcome_and_leaves_no_process(
    database: Database, start_worker_here: StartWorker, rounds: Rounds, tmp_path: Path, ending: str
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    body = f"setsid sleep 300 & sleep {LIFE_SECONDS}; kill $!; {ending}"
    command = ledger_command(ledger.path, body=body) if ending == "true" else f"{body} || exit 3"
    again = RetryPolicy(max_attempts=3)
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command, retry=again)
    await start_worker_here(capacity=SIDE_BY_SIDE, grace_seconds=0.5)
    dice, turns = random.Random(7), asyncio.Semaphore(SIDE_BY_SIDE)

    async def race(number: int) -> int:
        async with turns:
            [execution] = await request(database, "demo.shell")
            await place(database, [execution])
            await asyncio.sleep(dice.uniform(0, 2.5 * LIFE_SECONDS))
            async with database.transaction() as tx:
                await cancel_execution(tx, execution, actor="ana", force=number % 3 == 0)

            async def ended() -> bool:
                return (await statuses(database, [execution]))[0] in TERMINAL

            await until(ended)
            return execution

    ids = list(await asyncio.gather(*(race(number) for number in range(rounds(ROUNDS)))))
    prefix = Marking(home=tmp_path, worker="worker-1", instance=uuid4()).worker_prefix

    async def nothing_left() -> bool:
        return find_marked(prefix) == set()

    await until(nothing_left)
    assert ledger.doubled_starts() == []
    async with database.reading() as tx:
        ends = await tx.fetch_column(
            "SELECT count(*) FROM execution_history WHERE to_status = ANY($1) GROUP BY execution_id",
            [str(each) for each in TERMINAL],
        )
        moved_on = await tx.fetch_value(
            "SELECT count(*) FROM execution_history a JOIN execution_history b USING (execution_id)"
            " WHERE a.to_status IN ('canceling', 'cancelled') AND b.id > a.id"
            " AND b.to_status NOT IN ('cancelled', 'succeeded')"
        )
    assert ends == [1] * len(ids)
    assert moved_on == 0, "something went on after it was cancelled"
