"""What is promised about failpoints: nothing unless armed, and exactly what was armed."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from attune.runtime.failpoints import (
    Action,
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


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    arm_failpoints("")


def test_unarmed_it_does_and_counts_nothing() -> None:
    assert failpoint("a") is False
    assert failpoint_hits() == {}


def test_a_number_picks_one_hit() -> None:
    arm_failpoints("a=raise@3")

    failpoint("a")
    failpoint("a")
    with pytest.raises(FailpointRaised, match="failpoint a, hit 3"):
        failpoint("a")
    failpoint("a")


def test_without_a_number_every_hit_fires() -> None:
    arm_failpoints("a=drop")

    assert failpoint("a") is True
    assert failpoint("a") is True
    assert failpoint("b") is False


def test_hits_are_counted_for_armed_and_other_names() -> None:
    arm_failpoints("a=drop@9")
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
        arm_from_environment({"ATTUNE_FAILPOINTS": "a=drop@p0.3", "ATTUNE_FAILPOINTS_SEED": "7"})
        return [failpoint("a") for _ in range(200)]

    first = draws()

    assert first == draws()
    assert 20 < sum(first) < 100


async def test_sleeping_takes_its_time_in_both_forms() -> None:
    arm_failpoints("a=sleep:0.05")

    started = time.monotonic()
    failpoint("a")
    await afailpoint("a")

    assert time.monotonic() - started >= 0.1


async def test_the_awaited_form_raises_and_drops_too() -> None:
    arm_failpoints("a=raise;b=drop")

    with pytest.raises(FailpointRaised):
        await afailpoint("a")
    assert await afailpoint("b") is True


def test_kill_ends_the_process_without_any_cleaning_up() -> None:
    code = (
        "import os; from attune.runtime.failpoints import *; arm_from_environment(os.environ)\n"
        "try:\n  print(1, flush=True); failpoint('a'); print(2, flush=True); failpoint('a'); print(3, flush=True)\n"
        "finally:\n  print('cleaned', flush=True)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env={"ATTUNE_FAILPOINTS": "a=kill@2"}, capture_output=True, text=True, check=False
    )

    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout.split() == ["1", "2"]


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
        ("a=explode", "unknown action; there are kill, raise, sleep, drop"),
        ("a=sleep", "needs seconds"),
        ("a=kill:3", "only sleep, needs seconds"),
        ("a=sleep:1.2.3", "is not a number"),
        ("a=raise@p2", "not between 0 and 1"),
        ("a=raise@0", "not between 1"),
        ("a=kill;a=raise", "armed twice: a"),
    ],
)
def test_a_mistake_in_the_list_is_told(text: str, told: str) -> None:
    with pytest.raises(FailpointError, match=told):
        arm_failpoints(text)
