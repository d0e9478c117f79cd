"""What is promised about failpoints: nothing unless armed, and exactly what was armed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from attune.runtime.failpoints import (
    Action,
    Declared,
    Failpoint,
    FailpointError,
    FailpointRaised,
    afailpoint,
    arm_failpoints,
    arm_from_environment,
    failpoint,
    failpoint_hits,
    parse_failpoints,
    record_failpoints,
)
from attune.runtime.failpoints.once import coverage

DECLARED = {
    name: Declared(name=name, places=(), services=frozenset({"worker"}), meaning="", answered=name == "b")
    for name in ("a", "b")
}


def arm(text: str, *, seed: int | None = None, folder: Path | None = None) -> None:
    arm_failpoints(text, seed=seed, folder=folder, process="worker-1", declared=DECLARED)


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    arm("")


def test_unarmed_it_does_and_counts_nothing() -> None:
    assert failpoint("a") is False
    assert failpoint_hits() == {}


def test_a_number_picks_one_hit() -> None:
    arm("a=raise@3")

    failpoint("a")
    failpoint("a")
    with pytest.raises(FailpointRaised, match="failpoint a, hit 3"):
        failpoint("a")
    failpoint("a")


def test_without_a_number_every_hit_fires() -> None:
    arm("a=drop")

    assert failpoint("a") is True
    assert failpoint("a") is True
    assert failpoint("b") is False


def test_hits_are_counted_for_armed_and_other_names() -> None:
    arm("a=drop@9")
    failpoint("a")
    failpoint("b")
    failpoint("b")

    assert failpoint_hits() == {"a": 1, "b": 2}


def test_hits_can_be_counted_with_nothing_armed() -> None:
    record_failpoints()
    failpoint("a")

    assert failpoint_hits() == {"a": 1}


def test_a_chance_is_drawn_the_same_for_the_same_seed() -> None:
    def draws() -> list[bool]:
        arm_from_environment({"ATTUNE_FAILPOINTS": "lease.renew=drop@p0.3", "ATTUNE_FAILPOINTS_SEED": "7"})
        return [failpoint("lease.renew") for _ in range(200)]

    first = draws()

    assert first == draws()
    assert 20 < sum(first) < 100


async def test_sleeping_takes_its_time_in_both_forms() -> None:
    arm("a=sleep:0.05")

    started = time.monotonic()
    failpoint("a")
    await afailpoint("a")

    assert time.monotonic() - started >= 0.1


async def test_the_awaited_form_raises_and_drops_too() -> None:
    arm("a=raise;b=drop")

    with pytest.raises(FailpointRaised):
        await afailpoint("a")
    assert await afailpoint("b") is True


def test_kill_ends_the_process_without_any_cleaning_up() -> None:
    ended = pass_twice({"ATTUNE_FAILPOINTS": "lease.renew=kill@2"})

    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["1", "2"]


def test_a_service_arms_only_what_the_registry_declares_for_it() -> None:
    arm_failpoints("a=drop", service="api", declared=DECLARED)
    assert failpoint("a") is False

    arm_failpoints("a=drop", service="worker", declared=DECLARED)
    assert failpoint("a") is True


def test_with_a_folder_only_the_first_of_all_processes_fires(tmp_path: Path) -> None:
    environment = {"ATTUNE_FAILPOINTS": "lease.renew=kill", "ATTUNE_FAILPOINTS_FOLDER": str(tmp_path / "fired")}

    first, second = pass_twice(environment), pass_twice(environment)

    assert (first.returncode, first.stdout.split()) == (-signal.SIGKILL, ["1"])
    assert (second.returncode, second.stdout.split()) == (0, ["1", "2", "3", "cleaned"])
    said = json.loads((tmp_path / "fired/lease.renew").read_text())
    assert (said["process"], said["action"], said["hit"]) == ("worker-1", "kill", 1)
    assert said["pid"] != os.getpid()


def test_with_a_folder_what_has_a_chance_and_leaves_the_process_alive_goes_on(tmp_path: Path) -> None:
    arm("a=drop@p1;b=drop", folder=tmp_path)

    assert [failpoint("a"), failpoint("a")] == [True, True]
    assert [failpoint("b"), failpoint("b")] == [True, False]


def test_with_a_folder_a_point_whose_file_is_removed_fires_once_more(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    arm("a=drop", folder=tmp_path)
    assert not failpoint("a")
    (tmp_path / "a").unlink()
    assert [failpoint("a") for _ in range(3)] == [True, False, False]


def test_the_folder_tells_what_a_run_has_reached(tmp_path: Path) -> None:
    declared = {**DECLARED, "c": DECLARED["a"]}
    (tmp_path / "a").write_text('{"action": "kill"}')
    (tmp_path / "b").write_text("")

    reached = coverage(tmp_path, declared)

    assert [set(part) for part in (reached.killed, reached.fired, reached.not_reached)] == [{"a"}, {"b"}, {"c"}]
    assert str(reached).splitlines() == [
        "failpoints: 1 of 3 killed a process, 1 did something else",
        "  not reached: c",
    ]


async def test_a_lost_answer_is_the_error_the_caller_has_for_it() -> None:
    arm("b=unknown@2")

    await afailpoint("b", unknown=ConnectionResetError)
    with pytest.raises(ConnectionResetError, match="failpoint b, hit 2: it was done"):
        await afailpoint("b", unknown=ConnectionResetError)


def pass_twice(environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    code = (
        "import os; from attune.runtime.failpoints import *; arm_from_environment(os.environ, process='worker-1')\n"
        "def say(word): print(word, flush=True)\n"
        "try:\n  say(1); failpoint('lease.renew'); say(2); failpoint('lease.renew'); say(3)\n"
        "finally:\n  say('cleaned')"
    )
    return subprocess.run(
        [sys.executable, "-c", code], env=dict(environment), capture_output=True, text=True, check=False
    )


def test_a_list_is_read_whole() -> None:
    assert parse_failpoints("outbox.publish=kill@3; x=sleep:0.5 ;y=raise@p0.05;") == [
        Failpoint(name="outbox.publish", action=Action.KILL, hit=3),
        Failpoint(name="x", action=Action.SLEEP, seconds=0.5),
        Failpoint(name="y", action=Action.RAISE, chance=0.05),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a", "is not of the form"),
        ("a=explode", "unknown action; there are kill, raise, sleep, drop, unknown"),
        ("a=sleep", "needs seconds"),
        ("a=kill:3", "only sleep, needs seconds"),
        ("a=sleep:1.2.3", "is not a number"),
        ("a=raise@p2", "not between 0 and 1"),
        ("a=raise@0", "not between 1"),
        ("a=kill;a=raise", "armed twice: a"),
        ("aa=kill", "there is no failpoint 'aa'; the nearest is 'a'"),
        ("a=unknown", "a has no answer that could be lost; these have: b"),
    ],
)
def test_a_mistake_in_the_list_is_told(text: str, told: str) -> None:
    with pytest.raises(FailpointError, match=told):
        arm(text)
