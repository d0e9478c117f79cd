"""Supervision itself, on small processes of its own."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from attune.cli.platform.child import Backoff, Death, Spec, State, Status
from attune.cli.platform.supervisor import Supervisor

SLEEPER = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
PARENT = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "below = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True);"
    "print(below.pid, flush=True); time.sleep(600)"
)
QUICK = Backoff(first_seconds=0.01, ceiling_seconds=0.05, healthy_after_seconds=60)


class Mourner:
    """Remembers deaths in the order they were reported."""

    def __init__(self) -> None:
        self.deaths: list[Death] = []

    async def __call__(self, death: Death) -> None:
        self.deaths.append(death)


@asynccontextmanager
async def supervising(
    directory: Path, code: str = SLEEPER, *, backoff: Backoff = QUICK, grace_seconds: float = 5.0
) -> AsyncIterator[tuple[Supervisor, Mourner]]:
    def specify(service: str, name: str) -> Spec:
        return Spec(
            name=name,
            service=service,
            command=(sys.executable, "-I", "-c", code),
            environment=dict(os.environ),
            log=directory / f"{name}.log",
        )

    mourner = Mourner()
    supervisor = Supervisor(specify, on_death=mourner, backoff=backoff, grace_seconds=grace_seconds)
    try:
        yield supervisor, mourner
    finally:
        supervisor.kill()
        await supervisor.stop()


async def until(holds: Callable[[], bool], *, what: str, seconds_max: float = 20.0) -> None:
    deadline = time.monotonic() + seconds_max
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {what}"
        await asyncio.sleep(0.01)


def running(supervisor: Supervisor) -> list[Status]:
    return [each for each in supervisor.status if each.state is State.RUNNING]


def pid_of(supervisor: Supervisor) -> int:
    (only,) = supervisor.status
    assert only.pid is not None
    return only.pid


async def test_a_killed_process_comes_back_under_its_name(tmp_path: Path) -> None:
    async with supervising(tmp_path) as (supervisor, mourner):
        supervisor.scale({"worker": 1})
        await until(lambda: len(running(supervisor)) == 1, what="it runs")
        first = pid_of(supervisor)
        os.kill(first, signal.SIGKILL)
        await until(lambda: running(supervisor) != [] and pid_of(supervisor) != first, what="it runs again")
        (status,) = supervisor.status
        assert (status.name, status.restarts) == ("worker-1", 1)
        (death,) = mourner.deaths
        assert (death.name, death.pid, death.reason) == ("worker-1", first, "was ended by SIGKILL")


async def test_a_death_is_reported_before_the_next_start(tmp_path: Path) -> None:
    alive_when_told: list[int] = []
    async with supervising(tmp_path) as (supervisor, mourner):

        async def look(death: Death) -> None:
            alive_when_told.append(len(running(supervisor)))
            await Mourner.__call__(mourner, death)

        supervisor._on_death = look
        supervisor.scale({"worker": 1})
        await until(lambda: len(running(supervisor)) == 1, what="it runs")
        os.kill(pid_of(supervisor), signal.SIGKILL)
        await until(lambda: len(mourner.deaths) == 1 and len(running(supervisor)) == 1, what="it runs again")
    assert alive_when_told == [0]


async def test_pauses_grow_while_a_process_does_not_stay_up(tmp_path: Path) -> None:
    backoff = Backoff(first_seconds=0.01, ceiling_seconds=0.08, healthy_after_seconds=60)
    async with supervising(tmp_path, "raise SystemExit(3)", backoff=backoff) as (supervisor, mourner):
        supervisor.scale({"worker": 1})
        await until(lambda: len(mourner.deaths) >= 5, what="it died five times")
    delays = [death.delay_seconds for death in mourner.deaths]
    assert 0.005 <= delays[0] <= 0.01
    assert all(delay <= 0.08 for delay in delays)
    assert delays[4] >= 0.04, "from the fourth on it is the ceiling, less at most half of it by chance"
    assert mourner.deaths[0].reason == "ended with exit code 3"


async def test_a_process_that_was_healthy_starts_from_the_shortest_pause(tmp_path: Path) -> None:
    backoff = Backoff(first_seconds=0.01, ceiling_seconds=10, healthy_after_seconds=0)
    async with supervising(tmp_path, "pass", backoff=backoff) as (supervisor, mourner):
        supervisor.scale({"worker": 1})
        await until(lambda: len(mourner.deaths) >= 6, what="it ended six times")
    assert max(death.delay_seconds for death in mourner.deaths) <= 0.01


async def test_a_program_that_does_not_exist_is_tried_again(tmp_path: Path) -> None:
    def specify(service: str, name: str) -> Spec:
        return Spec(name=name, service=service, command=("/no/such/program",), environment={}, log=tmp_path / "log")

    mourner = Mourner()
    supervisor = Supervisor(specify, on_death=mourner, backoff=QUICK)
    supervisor.scale({"worker": 1})
    await until(lambda: len(mourner.deaths) >= 2, what="it was tried twice")
    await supervisor.stop()
    assert "cannot be started" in mourner.deaths[0].reason
    assert [each.state for each in supervisor.status] == [State.STOPPED]


async def test_scaling_starts_and_stops_from_the_highest_number(tmp_path: Path) -> None:
    async with supervising(tmp_path) as (supervisor, _):
        supervisor.scale({"executor": 3, "worker": 1})
        await until(lambda: len(running(supervisor)) == 4, what="all run")
        kept = {each.name: each.pid for each in running(supervisor)}
        supervisor.scale({"executor": 1})
        await until(lambda: len(supervisor.status) == 2, what="two are gone")
        assert {each.name: each.pid for each in running(supervisor)} == {
            name: kept[name] for name in ("executor-1", "worker-1")
        }
        supervisor.scale({"executor": 2})
        await until(lambda: len(running(supervisor)) == 3, what="one came back")
        assert [each.name for each in running(supervisor)] == ["executor-1", "worker-1", "executor-2"]


async def test_stopping_leaves_no_process(tmp_path: Path) -> None:
    async with supervising(tmp_path) as (supervisor, mourner):
        supervisor.scale({"worker": 3})
        await until(lambda: len(running(supervisor)) == 3, what="all run")
        pids = [each.pid for each in supervisor.status]
        await supervisor.stop()
        assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
        assert mourner.deaths == []
        assert {each.state for each in supervisor.status} == {State.STOPPED}


async def test_what_ignores_the_request_to_end_is_killed_after_the_grace(tmp_path: Path) -> None:
    async with supervising(tmp_path, DEAF, grace_seconds=0.2) as (supervisor, _):
        supervisor.scale({"worker": 1})
        await until(lambda: "deaf" in read(tmp_path / "worker-1.log"), what="it is deaf")
        pid = pid_of(supervisor)
        await supervisor.stop()
        assert not psutil.pid_exists(pid)


async def test_killing_reaches_what_the_process_started(tmp_path: Path) -> None:
    async with supervising(tmp_path, PARENT, grace_seconds=0.2) as (supervisor, _):
        supervisor.scale({"worker": 1})
        await until(lambda: read(tmp_path / "worker-1.log").strip().isdigit(), what="its child runs")
        below = psutil.Process(int(read(tmp_path / "worker-1.log")))
        await supervisor.stop()
        with contextlib.suppress(psutil.NoSuchProcess):
            await until(lambda: below.status() == psutil.STATUS_ZOMBIE, what="its child is gone")


async def test_nothing_starts_after_the_stop(tmp_path: Path) -> None:
    async with supervising(tmp_path) as (supervisor, _):
        await supervisor.stop()
        supervisor.scale({"worker": 2})
        assert supervisor.status == []


async def test_output_goes_to_a_log_that_only_its_owner_reads(tmp_path: Path) -> None:
    async with supervising(tmp_path, "print('said'); import time; time.sleep(600)") as (supervisor, _):
        supervisor.scale({"worker": 1})
        await until(lambda: running(supervisor) != [], what="it runs")
        log = tmp_path / "worker-1.log"
        assert log.stat().st_mode & 0o777 == 0o600


@pytest.fixture(autouse=True)
def no_process_is_left() -> object:
    before = {each.pid for each in psutil.Process().children()}
    yield
    left = [each for each in psutil.Process().children() if each.pid not in before]
    assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
