"""`attune bench` as it is typed: its document, and a platform of which nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import psutil
import pytest

from attune.cli.bench.broker import require_unused
from attune.cli.exits import CommandFailed
from attune.transport.rabbitmq.declare import declare_all
from attune.transport.topology import DEAD_LETTERS, EXECUTOR_QUEUES
from tests.cli.commands import COMMAND, attune, clean_environment, wait_for

pytestmark = [pytest.mark.journey, pytest.mark.timeout(500)]

SECONDS_MAX = 400.0
TINY = ("bench", "--quick", "--executions", "40", "--batch", "7", "-o", "json")


@pytest.fixture
def place() -> Iterator[Path]:
    """Where homes are made, so that a test sees what is left; the database's account must be able to come in."""
    with tempfile.TemporaryDirectory(prefix="attune-benched-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def processes_in(place: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            home = process.environ().get("ATTUNE_HOME", "")
        except psutil.Error:
            continue
        if home.startswith(f"{place}/attune-bench-"):
            found.append(process.pid)
    return found


def test_a_quick_run_reports_every_workload_and_leaves_nothing(home: Path, place: Path) -> None:
    done = attune(*TINY, home=home, more={"TMPDIR": str(place)}, seconds_max=SECONDS_MAX)

    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    rows = document["workloads"]
    assert [(row["name"], row["runtime"]) for row in rows] == [
        (name, runtime) for name in ("W1", "W2", "W3") for runtime in ("native", "shell", "python")
    ]
    for row in rows:
        assert set(row) >= {
            *("name", "runtime", "transport", "executions", "limit", "per_second", "one_by_one_per_second"),
            *("start_ms", "inversions", "over_limit", "lost", "duplicated", "cpu_us_per_execution"),
        }
        assert row["transport"] == "postgres"
        assert row["executions"] == 40
        assert row["per_second"] > 0
        assert row["one_by_one_per_second"] > 0
        assert 0 < row["start_ms"]["p50"] <= row["start_ms"]["p99"]
        assert (row["inversions"], row["over_limit"], row["lost"], row["duplicated"]) == (0, 0, 0, 0)
        assert row["cpu_us_per_execution"].keys() >= {"postgres", "api-1", "executor-1", "worker-1"}
        assert row["commits_per_execution"] > 0
    assert document["machine"][0]["spawns_per_second"] > 0
    assert list(place.iterdir()) == []
    assert processes_in(place) == []
    assert not home.exists(), "the person's own home was touched"


def test_paced_requests_and_killed_processes_are_measured_with_nothing_broken(home: Path, place: Path) -> None:
    words = ("bench", "--quick", "--workload", "W4", "--workload", "W7", "--executions", "100", "-o", "json")
    done = attune(*words, home=home, more={"TMPDIR": str(place)}, seconds_max=SECONDS_MAX)

    assert done.returncode == 0, done.stdout + done.stderr
    *paced, killed = json.loads(done.stdout)["workloads"]
    assert [row["rate"] for row in paced] == [50, 500, 2000]
    assert all(row["late_ms"]["p50"] <= row["start_ms"]["p50"] for row in paced), "counted from when they were due"
    assert killed["kills"] == {"executor-1": 1, "worker-1": 1, "postgres": 1}
    assert killed["lost"] == 0
    assert list(place.iterdir()) == []
    assert processes_in(place) == []


def test_a_run_that_is_interrupted_takes_its_platform_with_it(home: Path, place: Path) -> None:
    bench = subprocess.Popen(
        [*COMMAND, "bench", "--workload", "W2", "--runtime", "native", "--executions", "1000000"],
        env=clean_environment(home, {"TMPDIR": str(place)}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with bench:
        try:
            wait_for(lambda: any(place.glob("*/run/url")), what="the platform is up", seconds_max=120.0)
        finally:
            bench.send_signal(signal.SIGINT)
        _, talk = bench.communicate(timeout=SECONDS_MAX)

    assert bench.returncode == 130, talk
    assert processes_in(place) == []
    assert list(place.iterdir()) == []


def test_a_run_that_is_interrupted_while_its_platform_starts_takes_that_along(home: Path, place: Path) -> None:
    bench = subprocess.Popen(
        [*COMMAND, "bench", "--quick"],
        env=clean_environment(home, {"TMPDIR": str(place)}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    with bench:
        try:
            wait_for(lambda: any(place.glob("*/data/postgres/*")), what="the database is made", seconds_max=60.0)
        finally:
            bench.send_signal(signal.SIGTERM)
        _, talk = bench.communicate(timeout=SECONDS_MAX)

    assert bench.returncode == 130, talk
    assert processes_in(place) == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("--transport", "rabbitmq"),
        ("--transport", "postgres", "--url", "amqp://somewhere"),
        ("--workload", "W99"),
    ],
)
def test_words_that_make_no_sense_are_refused_before_anything_starts(
    home: Path, place: Path, words: tuple[str, ...]
) -> None:
    done = attune("bench", *words, home=home, more={"TMPDIR": str(place)})

    assert done.returncode == 2, done.stderr
    assert list(place.iterdir()) == []


def test_rabbitmq_carries_a_measurement_too(home: Path, place: Path, rabbitmq_url: str) -> None:
    words = ("bench", "--quick", "--workload", "W1", "--runtime", "native", "--executions", "40", "-o", "json")
    done = attune(*words, "--url", rabbitmq_url, home=home, more={"TMPDIR": str(place)}, seconds_max=SECONDS_MAX)

    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["workloads"]
    assert row["transport"] == "rabbitmq"


async def test_a_broker_that_another_platform_uses_is_refused(rabbitmq_url: str) -> None:
    await require_unused(rabbitmq_url)
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel() as channel:
        await declare_all(channel, EXECUTOR_QUEUES[:1], dead_letter_exchange=DEAD_LETTERS)
        await channel.default_exchange.publish(aio_pika.Message(b"{}"), EXECUTOR_QUEUES[0].name)

    with pytest.raises(CommandFailed, match="in use"):
        await require_unused(rabbitmq_url)
