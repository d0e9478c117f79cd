"""The life of a whole platform, seen from outside: up, status, killed processes, scale, logs, down."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from attune.cli.platform.processes import find_marked
from attune.runtime.home import Home
from tests.cli.commands import COMMAND, attune, clean_environment, wait_for

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(300)]

QUICK = {
    "ATTUNE__WORKER__SHUTDOWN_TIMEOUT": "3",
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "ATTUNE__WORKER__ISOLATION": "none",
}
UP_SECONDS_MAX = 150.0
BACK_SECONDS_MAX = 60.0


@dataclass(frozen=True, kw_only=True)
class Running:
    """A platform of this test."""

    home: Path
    port: int

    def attune(self, *words: str, seconds_max: float = 60.0) -> "subprocess.CompletedProcess[str]":
        return attune(*words, home=self.home, more=QUICK, seconds_max=seconds_max)

    def up(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.attune("up", "--detach", "--port", str(self.port), *words, seconds_max=UP_SECONDS_MAX)

    def status(self) -> dict[str, dict[str, object]]:
        """Its processes by name."""
        document = json.loads(self.attune("status", "-o", "json").stdout)
        return {each["name"]: each for each in document["processes"]}

    def pid(self, name: str) -> int:
        pid = self.status()[name]["pid"]
        assert isinstance(pid, int)
        return pid

    def is_ready(self) -> bool:
        return bool(json.loads(self.attune("status", "-o", "json").stdout)["ready"])

    def supervisor(self) -> int:
        return int(Home(self.home).lock.read_text().split()[0])

    def processes(self) -> list[psutil.Process]:
        """All that belongs to it, the database and its backends included."""
        supervisor = psutil.Process(self.supervisor())
        return [supervisor, *supervisor.children(recursive=True)]


@pytest.fixture
def fresh() -> Iterator[Running]:
    """A home of one's own, in which nothing runs yet; nothing runs in it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    directory = Path(tempfile.mkdtemp(prefix="attune-life-"))
    directory.chmod(0o755)
    platform = Running(home=directory / "home", port=port)
    try:
        yield platform
    finally:
        assert platform.attune("down", seconds_max=UP_SECONDS_MAX).returncode == 0
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def platform(fresh: Running) -> Running:
    done = fresh.up()
    assert done.returncode == 0, done.stderr
    return fresh


def alive(processes: list[psutil.Process]) -> list[str]:
    """What still runs of these; one that ended and was not yet noticed does not."""
    found = []
    for each in processes:
        try:
            if each.is_running() and each.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{each.pid} {each.name()}")
        except psutil.Error:
            continue
    return found


def test_a_platform_starts_works_heals_scales_and_stops(fresh: Running) -> None:
    done = fresh.up("--scale", "executor=2")
    assert done.returncode == 0, done.stderr
    assert not done.stdout, "talk is not data"
    assert f"http://127.0.0.1:{fresh.port}" in done.stderr
    assert "password" in done.stderr
    _everything_is_named(fresh)
    _killed_ones_come_back(fresh)
    _their_number_can_be_changed(fresh)
    by_hand = _start_by_hand(fresh)
    again = fresh.up()
    assert again.returncode == 5
    assert f"(pid {fresh.supervisor()})" in again.stderr
    assert "service" in fresh.attune("logs", "executor-1").stdout
    processes = fresh.processes()
    assert fresh.attune("down", seconds_max=UP_SECONDS_MAX).returncode == 0
    assert by_hand.wait(10) == 0
    assert alive(processes) == []
    assert find_marked(Home(fresh.home)) == []


def _everything_is_named(platform: Running) -> None:
    document = json.loads(platform.attune("status", "-o", "json").stdout)
    assert set(document) == {"url", "ready", "transport", "processes"}
    assert document["ready"] is True
    assert document["transport"] == "postgres"
    services = {each["name"]: each for each in document["processes"]}
    assert {"api-1", "executor-1", "executor-2", "worker-1", "sensor-1", "notifier-1"} <= set(services)
    for name, each in services.items():
        assert set(each) == {"name", "service", "pid", "state", "restarts"}
        assert (each["state"], each["restarts"]) == ("running", 0)
        if each["service"] != "postgres":
            process = psutil.Process(each["pid"])
            assert process.environ()["ATTUNE_HOME"] == str(platform.home)
            assert process.cmdline()[0].startswith(f"attune-{each['service']} "), name


def _killed_ones_come_back(platform: Running) -> None:
    for name in ("worker-1", "api-1", "postgres"):
        before = platform.pid(name)
        os.kill(before, signal.SIGKILL)

        def is_back(name: str = name, before: int = before) -> bool:
            now = platform.status()[name]
            return now["state"] == "running" and now["pid"] != before and now["restarts"] == 1

        wait_for(is_back, what=f"{name} is back", seconds_max=BACK_SECONDS_MAX)
    wait_for(platform.is_ready, what="ready again", seconds_max=BACK_SECONDS_MAX)


def _their_number_can_be_changed(platform: Running) -> None:
    assert platform.attune("scale", "executor=3", "worker=2").returncode == 0
    wait_for(lambda: {"executor-3", "worker-2"} <= set(platform.status()), what="more run")
    kept = platform.pid("executor-1")
    assert platform.attune("scale", "executor=1").returncode == 0
    wait_for(
        lambda: "executor-2" not in platform.status() and "executor-3" not in platform.status(),
        what="fewer run",
        seconds_max=BACK_SECONDS_MAX,
    )
    assert platform.pid("executor-1") == kept


def _start_by_hand(platform: Running) -> "subprocess.Popen[bytes]":
    """A service that joins the platform; it is tied to no supervisor, and `down` finds it all the same."""
    started = subprocess.Popen(
        [*COMMAND, "serve", "worker", "--name", "by-hand"],
        env=clean_environment(platform.home, QUICK),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def has_joined() -> bool:
        listed = json.loads(platform.attune("worker", "list", "-o", "json").stdout or '{"items":[]}')["items"]
        return any(each["name"] == "by-hand" and each["status"] == "active" for each in listed)

    wait_for(has_joined, what="the worker joined", seconds_max=BACK_SECONDS_MAX)
    return started


def test_a_killed_supervisor_leaves_nothing_and_the_next_one_starts(platform: Running) -> None:
    processes = platform.processes()
    os.kill(platform.supervisor(), signal.SIGKILL)
    wait_for(lambda: alive(processes) == [], what="everything is gone", seconds_max=BACK_SECONDS_MAX)
    again = platform.up()
    assert again.returncode == 0, again.stderr
    assert "password" not in again.stderr, "it is shown once"


def test_starting_again_while_the_remains_of_a_killed_one_end_is_no_conflict(platform: Running) -> None:
    os.kill(platform.supervisor(), signal.SIGKILL)
    again = platform.up()
    assert again.returncode == 0, again.stderr
    assert platform.is_ready()


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_foreground_platform_and_leaves_no_process(fresh: Running, which: signal.Signals) -> None:
    command = [*COMMAND, "up", "--port", str(fresh.port)]
    environment = clean_environment(fresh.home, QUICK)
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        said = ""
        while "Ctrl-C" not in said:
            line = up.stderr.readline()
            assert line, f"it ended: {said}"
            said += line
        assert "run core.echo message=hi --wait" in said
        processes = fresh.processes()
        up.send_signal(which)
        assert up.wait(60) == 0
    assert alive(processes) == []
    assert find_marked(Home(fresh.home)) == []
