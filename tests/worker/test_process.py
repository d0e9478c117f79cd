"""A worker that is killed, paused or pushed aside never leaves a script running that it can no longer answer for."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from attune.domain.definitions import Runner
from attune.operations.release_executions import release_executions
from attune.operations.rescue_lost import rescue_lost
from attune.storage.database import Database
from attune.storage.views import executions
from attune.worker.processes import MARKER_VARIABLE, Marking, end_all, find_marked
from tests.witness.arrange import always_half, make_action, place, request, statuses
from tests.witness.ledger import Ledger, ledger_command
from tests.witness.proxy import proxy_before
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker

ROOT = Path(__file__).resolve().parents[2]
StartProcess = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def start_process(database: Database, database_url: str, tmp_path: Path) -> AsyncIterator[StartProcess]:
    started: list[asyncio.subprocess.Process] = []

    async def begin(
        *, heartbeat_seconds: float = 1.0, failpoints: str = "", url: str = database_url
    ) -> asyncio.subprocess.Process:
        told = {"name": "worker-1", "home": str(tmp_path), "url": url, "heartbeat_seconds": heartbeat_seconds}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).with_name("process.py")),
            msgspec.json.encode(told).decode(),
            env={"PYTHONPATH": f"{ROOT}/src:{ROOT}", "PATH": os.environ["PATH"], "ATTUNE_FAILPOINTS": failpoints},
        )
        started.append(process)

        async def registered() -> bool:
            async with database.reading() as tx:
                return bool(await tx.fetch_value("SELECT count(*) FROM worker WHERE pid = $1", process.pid))

        await until(registered)
        return process

    yield begin
    for process in started:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()
    prefix = Marking(home=tmp_path, worker="worker-1", instance=uuid4()).worker_prefix

    async def nothing_left() -> bool:
        return find_marked(prefix) == set()

    try:
        await until(nothing_left)
    finally:
        await end_all(lambda: find_marked(prefix))


async def run_endless(database: Database, tmp_path: Path) -> tuple[int, Ledger, Path]:
    """An execution whose script runs, with a child and a child in another session."""
    ledger = Ledger(tmp_path / "ledger.txt")
    pids = tmp_path / "pids"
    body = f"echo $$ > {pids}; setsid sleep 300 & echo $! >> {pids}; sleep 300 & echo $! >> {pids}; wait"
    command = ledger_command(ledger.path, body=body)
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def all_started() -> bool:
        return pids.exists() and len(pids.read_text().split()) == 3

    await until(all_started)
    return execution, ledger, pids


def alive(pids: Path) -> list[str]:
    return [pid for pid in pids.read_text().split() if is_running(int(pid))]


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


async def test_a_killed_worker_leaves_no_script_running(
    database: Database, start_process: StartProcess, tmp_path: Path
) -> None:
    worker = await start_process()
    _, _, pids = await run_endless(database, tmp_path)
    assert len(alive(pids)) == 3

    worker.kill()
    await worker.wait()

    async def all_gone() -> bool:
        return alive(pids) == []

    await until(all_gone, seconds=5)


async def test_a_terminated_worker_drains_and_leaves(
    database: Database, start_process: StartProcess, tmp_path: Path
) -> None:
    worker = await start_process()
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command="sleep 0.5")
    ids = await request(database, "demo.shell", count=3)
    await place(database, ids)

    async def all_run() -> bool:
        return await statuses(database, ids) == ["running"] * 3

    await until(all_run)
    worker.terminate()
    assert await worker.wait() == 0
    assert await statuses(database, ids) == ["succeeded"] * 3
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT status FROM worker") == "inactive"


async def test_a_second_signal_forces_a_worker_to_leave_and_nothing_stays(
    database: Database, start_process: StartProcess, tmp_path: Path
) -> None:
    worker = await start_process()
    _, _, pids = await run_endless(database, tmp_path)
    worker.terminate()

    async def drains() -> bool:
        async with database.reading() as tx:
            return bool(await tx.fetch_value("SELECT status FROM worker") == "draining")

    await until(drains)
    worker.terminate()
    assert await worker.wait() == 128 + signal.SIGTERM
    assert alive(pids) == []


async def test_a_paused_worker_kills_what_it_ran_before_anything_else(
    database: Database, start_process: StartProcess, tmp_path: Path
) -> None:
    worker = await start_process(heartbeat_seconds=0.3)
    execution, ledger, pids = await run_endless(database, tmp_path)
    worker.send_signal(signal.SIGSTOP)

    async def rescued() -> bool:
        async with database.transaction() as tx:
            await rescue_lost(tx, placements_max=5, draw=always_half)
        return await statuses(database, [execution]) == ["failed"]

    await until(rescued)
    assert len(alive(pids)) == 3
    worker.send_signal(signal.SIGCONT)

    async def all_gone() -> bool:
        return alive(pids) == []

    await until(all_gone, seconds=5)
    assert ledger.starts() == [(execution, 1)]
    assert ledger.ends() == []
    assert await statuses(database, [execution]) == ["failed"]


async def test_a_worker_paused_between_claim_and_start_never_starts(
    database: Database, start_process: StartProcess, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    command = ledger_command(ledger.path, body="true")
    # Longer than the time an attempt may run without a renewal.
    await start_process(heartbeat_seconds=0.3, failpoints="worker.run.blocked=sleep:2@1")
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def over() -> bool:
        return (await statuses(database, [execution]))[0] == "failed"

    await until(over)
    assert ledger.lines() == []
    async with database.reading() as tx:
        error = await tx.fetch_value("SELECT error FROM execution WHERE id = $1", execution)
    assert error["code"] == "lease_lost"


async def test_a_worker_whose_name_was_taken_ends_and_its_scripts_with_it(
    database: Database, start_process: StartProcess, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    first = await start_process(heartbeat_seconds=0.3)
    _, _, pids = await run_endless(database, tmp_path)
    # From another home, so that the newcomer does not take the scripts for its own leftovers.
    await start_worker_here(home=tmp_path / "elsewhere")

    assert await first.wait() == 1
    assert alive(pids) == []


async def test_a_starting_worker_ends_what_an_earlier_start_left(
    start_worker_here: StartWorker, tmp_path: Path
) -> None:
    earlier = Marking(home=tmp_path, worker="worker-1", instance=uuid4())
    neighbour = Marking(home=tmp_path, worker="worker-2", instance=uuid4())
    left = await asyncio.create_subprocess_exec("sleep", "300", env={MARKER_VARIABLE: earlier.marker(1, 1)})
    other = await asyncio.create_subprocess_exec("sleep", "300", env={MARKER_VARIABLE: neighbour.marker(1, 1)})
    try:
        await start_worker_here()
        assert await left.wait() == -signal.SIGKILL
        assert other.returncode is None
    finally:
        other.kill()
        await other.wait()


async def test_a_worker_cut_off_from_the_database_kills_its_scripts_before_anybody_may_take_over(
    database: Database, database_url: str, start_process: StartProcess, tmp_path: Path
) -> None:
    async with proxy_before(database_url) as proxy:
        await start_process(url=proxy.redirect(database_url))
        _, ledger, pids = await run_endless(database, tmp_path)
        proxy.black_hole()

        async def all_gone() -> bool:
            return alive(pids) == []

        await until(all_gone)
        async with database.reading() as tx:
            # The attempt may be given to another worker one interval after its lease has run out.
            assert await tx.fetch_value("SELECT now() < lease_until + interval '1 second' FROM assignment")
        assert ledger.ends() == []
        proxy.black_hole(on=False)


async def test_what_ended_while_the_database_was_away_is_reported_when_it_is_back(
    database: Database, database_url: str, start_process: StartProcess, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    gate = tmp_path / "gate"
    command = ledger_command(ledger.path, body=f"while [ ! -e {gate} ]; do sleep 0.02; done; echo printed")
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    async with proxy_before(database_url) as proxy:
        await start_process(url=proxy.redirect(database_url), heartbeat_seconds=3)
        [execution] = await request(database, "demo.shell")
        await place(database, [execution])

        async def started() -> bool:
            return len(ledger.starts()) == 1

        async def ended() -> bool:
            return len(ledger.ends()) == 1

        await until(started)
        proxy.refuse = True
        proxy.cut()
        gate.touch()
        await until(ended)
        assert await statuses(database, [execution]) == ["running"]
        proxy.refuse = False

        async def reported() -> bool:
            return await statuses(database, [execution]) == ["succeeded"]

        await until(reported)
        async with database.reading() as tx:
            assert await tx.fetch_column("SELECT content FROM execution_log") == ["printed\n"]
            assert await tx.fetch_value("SELECT count(*) FROM late_result") == 0


async def test_a_start_that_was_committed_unheard_runs_the_action_once(
    database: Database, database_url: str, start_process: StartProcess, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    command = ledger_command(ledger.path, body="true")
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    async with proxy_before(database_url) as proxy:
        # Time to make the proxy deaf between the claim and its commit.
        await start_process(
            url=proxy.redirect(database_url), heartbeat_seconds=5, failpoints="worker.claim.before_commit=sleep:2@1"
        )
        [execution] = await request(database, "demo.shell")
        await place(database, [execution])
        await until(lambda: claim_is_open(database))
        proxy.swallow_to_client = True

        async def committed() -> bool:
            return await statuses(database, [execution]) == ["running"]

        await until(committed)
        assert ledger.starts() == []
        proxy.cut()
        proxy.swallow_to_client = False

        async def succeeded() -> bool:
            return await statuses(database, [execution]) == ["succeeded"]

        await until(succeeded)
    assert ledger.starts() == [(execution, 1)]
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT attempt, tries FROM execution")
    assert row is not None
    assert tuple(row) == (1, 1)


async def claim_is_open(database: Database) -> bool:
    """A transaction has written and rests before its commit, for longer than any but the one that was told to."""
    async with database.reading() as tx:
        return bool(
            await tx.fetch_value(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                " AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
                " AND state_change < clock_timestamp() - interval '0.5 seconds'"
            )
        )


async def test_what_a_paused_worker_reports_too_late_is_refused_kept_and_shown(
    database: Database, start_process: StartProcess, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    gate = tmp_path / "gate"
    body = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    await make_action(
        database,
        "demo.shell",
        runner=Runner.SHELL,
        entry_point=None,
        command=ledger_command(ledger.path, body=body),
        idempotent=True,
    )
    paused = await start_process(heartbeat_seconds=0.3)
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def begun(times: int) -> bool:
        return len(ledger.starts()) == times

    await until(lambda: begun(1))
    paused.send_signal(signal.SIGSTOP)
    await start_worker_here(name="worker-2", home=tmp_path / "elsewhere")

    async def runs_elsewhere() -> bool:
        async with database.transaction() as tx:
            await rescue_lost(tx, placements_max=5, draw=always_half)
            await release_executions(tx, [], actor="executor test", draw=always_half)
        return await begun(2)

    await until(runs_elsewhere)
    gate.touch()

    async def succeeded() -> bool:
        return await statuses(database, [execution]) == ["succeeded"]

    await until(succeeded)
    paused.send_signal(signal.SIGCONT)

    async def refused() -> bool:
        async with database.reading() as tx:
            late = await executions.list_late_results(tx, execution)
        return [each.attempt for each in late] == [1]

    await until(refused)
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, attempt, tries FROM execution")
    assert row is not None
    assert tuple(row) == ("succeeded", 2, 2)
