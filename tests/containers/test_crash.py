"""A worker that is killed leaves no container behind, and one that starts removes what was left."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from attune.domain.definitions import Isolation, Runner
from attune.operations.cancel_execution import cancel_execution
from attune.storage.database import Database
from attune.storage.views import executions
from attune.worker.containers.engine import Engine, worker_label
from attune.worker.processes import MARKER_VARIABLE, Marking, find_marked
from tests.witness.arrange import make_action, place, request
from tests.witness.podman import IMAGE, Podman
from tests.witness.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
StartProcess = Callable[[], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def start_process(
    database: Database, database_url: str, tmp_path: Path, podman: Podman
) -> AsyncIterator[StartProcess]:
    """Starts workers that find the run's podman."""
    started: list[asyncio.subprocess.Process] = []

    async def begin() -> asyncio.subprocess.Process:
        told = {
            "name": "worker-1",
            "home": str(tmp_path),
            "url": database_url,
            "heartbeat_seconds": 1.0,
            "container": "podman",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "tests/worker/process.py"),
            msgspec.json.encode(told).decode(),
            env={"PYTHONPATH": f"{ROOT}/src:{ROOT}", **podman.environment},
        )
        started.append(process)

        async def registered() -> bool:
            async with database.reading() as tx:
                return bool(await tx.fetch_value("SELECT count(*) FROM worker WHERE pid = $1", process.pid))

        await until(registered, seconds=SECONDS)
        return process

    yield begin
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_endless(database: Database) -> int:
    """An execution whose container runs."""
    await make_action(
        database,
        "demo.box",
        runner=Runner.CONTAINER,
        entry_point=None,
        image=IMAGE,
        isolation=Isolation.CONTAINER,
        command="echo ready; (trap '' TERM HUP; sleep 300) & sleep 300",
    )
    [execution] = await request(database, "demo.box")
    await place(database, [execution])

    async def printed() -> bool:
        async with database.reading() as tx:
            return bool(await tx.fetch_value("SELECT count(*) FROM execution_log WHERE execution_id = $1", execution))

    await until(printed, seconds=SECONDS)
    return execution


def nothing_of(podman: Podman, prefix: str) -> Callable[[], Awaitable[bool]]:
    async def gone() -> bool:
        return find_marked(prefix) == set() and not await asyncio.to_thread(podman.containers)

    return gone


async def test_no_container_outlives_a_worker_that_is_killed(
    database: Database, start_process: StartProcess, podman: Podman, marking: Marking
) -> None:
    worker = await start_process()
    await run_endless(database)
    assert podman.containers()
    assert find_marked(marking.worker_prefix)
    worker.kill()
    await worker.wait()
    await until(nothing_of(podman, marking.worker_prefix), seconds=SECONDS)


async def test_a_worker_that_starts_removes_what_an_earlier_start_left(
    database: Database, start_process: StartProcess, podman: Podman, engine: Engine, marking: Marking
) -> None:
    """As after a crash of the machine's guardian too."""
    marker = marking.marker(1, 1)
    left = await engine.call(
        *("run", "--detach", "--network", "none", "--label", worker_label(marking), "--ulimit", "nproc=4096:4096"),
        *("--ulimit", "nofile=1024:1024"),
        *("--env", f"{MARKER_VARIABLE}={marker}", IMAGE, "sleep", "300"),
    )
    assert left.exit_code == 0, left
    assert podman.containers()
    await start_process()
    await until(nothing_of(podman, marking.worker_prefix), seconds=SECONDS)


async def test_a_worker_offers_containers_only_where_they_work(database: Database, start_process: StartProcess) -> None:
    await start_process()
    async with database.reading() as tx:
        runtimes = await tx.fetch_value("SELECT runtimes FROM worker WHERE name = 'worker-1'")
        details = await tx.fetch_value("SELECT runtime_details ->> 'container' FROM worker WHERE name = 'worker-1'")
    assert {"container", "http", "native", "shell"} <= set(runtimes)
    assert details.startswith("podman (")


async def test_whoever_makes_containers_gives_them_every_isolation(
    database: Database, start_process: StartProcess
) -> None:
    await start_process()
    for runner in (Runner.CONTAINER, Runner.SHELL):
        await make_action(database, f"demo.{runner}", runner=runner, isolation=Isolation.CONTAINER)
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT a.runner FROM action a, worker w WHERE can_run(w, a)")
    assert [row["runner"] for row in rows] == [Runner.CONTAINER]


async def test_cancelling_ends_the_container(
    database: Database, start_process: StartProcess, podman: Podman, marking: Marking
) -> None:
    await start_process()
    execution = await run_endless(database)
    async with database.transaction() as tx:
        await cancel_execution(tx, execution, actor="tests")

    async def cancelled() -> bool:
        async with database.reading() as tx:
            view = await executions.find(tx, execution)
        return view is not None and view.status == "cancelled"

    await until(cancelled, seconds=SECONDS)
    await until(nothing_of(podman, marking.worker_prefix), seconds=SECONDS)
