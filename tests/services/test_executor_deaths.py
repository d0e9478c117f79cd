"""Executors that die at every step of handling a line: nothing is stuck, doubled or out of order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from attune.storage.database import Database
from tests.witness.arrange import make_action, request, statuses
from tests.witness.lines import make_policy, nothing_is_broken
from tests.witness.waiting import until

# Release and the next dispatch are one transaction: to die in between is to die before its commit. To die after the
# commit is to die before the dispatch was published.
CONSUMING = ("consume.received.before_tx", "consume.before_commit", "consume.after_commit_before_ack")
PUBLISHING = ("publish.sent.before_confirm", "publish.confirmed.before_outbox_delete")
COUNT = 12
DIE_SECONDS = 60


@pytest.fixture(params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def environment(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> dict[str, str]:
    """What services of this test are started with, on each transport."""
    chosen = {
        "PATH": os.environ["PATH"],
        "ATTUNE_HOME": str(tmp_path),
        "ATTUNE__DATABASE__URL": database_url,
        "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "2",
    }
    if request.param == "rabbitmq":
        chosen["ATTUNE__MESSAGE_QUEUE__URL"] = request.getfixturevalue("rabbitmq_url")
    return chosen


@asynccontextmanager
async def service(kind: str, environment: dict[str, str], *, failpoints: str = "") -> AsyncIterator[Process]:
    """One service as a process of its own, killed at the end of the block if it still lives."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "attune.cli.main", "serve", kind, "--name", f"{kind}-1"),
        env={**environment, "ATTUNE_FAILPOINTS": failpoints},
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.timeout(300)
async def test_executors_that_die_at_every_step_leave_nothing_stuck(
    database: Database, environment: dict[str, str]
) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 1})
    points = CONSUMING + (PUBLISHING if "ATTUNE__MESSAGE_QUEUE__URL" in environment else ())
    # A worker that handles one by one leaves it to executors to let the next in line go.
    async with service("worker", {**environment, "ATTUNE__EXECUTOR__BATCH_MAX": "1"}):
        await until(lambda: worker_is_there(database), seconds=DIE_SECONDS)
        ids = await request(database, count=COUNT)
        for point in points:
            async with service("executor", environment, failpoints=f"{point}=kill@2") as doomed:
                async with asyncio.timeout(DIE_SECONDS):
                    assert await doomed.wait() == -signal.SIGKILL
        assert "queued" in await statuses(database, ids), "all was over before the last executor died"
        async with service("executor", environment):
            await until(lambda: all_succeeded(database, ids), seconds=DIE_SECONDS)
            await until(lambda: line_is_empty(database), seconds=DIE_SECONDS)
    async with database.reading() as tx:
        log = await tx.fetch_column("SELECT execution_id FROM admission_log WHERE op = 'admit' ORDER BY n")
        attempts = await tx.fetch_column("SELECT DISTINCT attempt FROM execution")
    assert log == ids
    assert attempts == [1]
    await nothing_is_broken(database)


async def worker_is_there(database: Database) -> bool:
    async with database.reading() as tx:
        return bool(await tx.fetch_value("SELECT EXISTS (SELECT 1 FROM worker WHERE status = 'active')"))


async def all_succeeded(database: Database, ids: list[int]) -> bool:
    return set(await statuses(database, ids)) == {"succeeded"}


async def line_is_empty(database: Database) -> bool:
    async with database.reading() as tx:
        return not await tx.fetch_value("SELECT count(*) FROM line_entry")
