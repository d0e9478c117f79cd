"""Requests on a schedule: when each is due, what counts as late, and who was overtaken."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.cli.bench.judge import count_overtaken
from attune.cli.bench.killing import Outage, find_unexplained
from attune.cli.bench.paced import Schedule, is_reached, sent_rate
from attune.cli.bench.workloads import paced_workloads, simple_workloads
from attune.storage.upkeep.yardstick import LeftAttempt

NOW = 1_800_000_000.25


@given(rate=st.integers(1, 10_000), number=st.integers(0, 200_000))
def test_a_request_is_due_at_its_moment_and_not_before(rate: int, number: int) -> None:
    schedule = Schedule(began=NOW, rate=rate)

    assert schedule.count_due(schedule.due(number)) == number + 1
    assert schedule.count_due(schedule.due(number) - 0.5 / rate) == number


def test_nothing_is_due_before_the_beginning() -> None:
    assert Schedule(began=NOW, rate=500).count_due(NOW - 1) == 0


def test_the_schedule_does_not_wait_for_answers() -> None:
    schedule = Schedule(began=NOW, rate=500)

    assert schedule.count_due(NOW + 2) == 1001, "two seconds of silence, and all of them are due"


def test_requests_at_their_moments_are_sent_at_the_rate() -> None:
    schedule = Schedule(began=NOW, rate=50)

    assert math.isclose(sent_rate(100, schedule, schedule.due(99)), 50, rel_tol=1e-4)
    assert sent_rate(100, schedule, schedule.due(199)) < 26


@pytest.mark.parametrize(("sent", "done", "reached"), [(500, 499, True), (400, 499, False), (500, 400, False)])
def test_a_rate_is_reached_only_if_it_was_sent_and_carried_out(sent: float, done: float, reached: bool) -> None:  # noqa: FBT001  one of three cases
    assert is_reached(500, sent=sent, done=done) is reached


def test_only_those_sent_after_an_answer_can_overtake() -> None:
    sent = {1: 0.0, 2: 0.5, 3: 2.0}
    answered = {1: 1.0, 2: 1.5, 3: 3.0}

    assert count_overtaken([2, 1, 3], sent, answered) == 0, "1 and 2 were under way together"
    assert count_overtaken([3, 1, 2], sent, answered) == 2, "both had been answered before 3 was sent"


def test_rates_and_runtimes_have_actions_of_their_own() -> None:
    chosen = [
        *simple_workloads(["W1", "W2", "W3"], ["native", "shell", "python"], quick=True, executions=None),
        *paced_workloads(quick=True, executions=None),
    ]
    refs = [ref for workload in chosen for ref in workload.refs]

    assert len(refs) == len(set(refs))


def left(placed: float, gone: float, reason: str = "lease expired") -> LeftAttempt:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    placed_at, left_at = (start + timedelta(seconds=each) for each in (placed, gone))
    return LeftAttempt(execution_id=1, placed_at=placed_at, left_at=left_at, reason=reason)


def outage(victim: str, began: float, ended: float) -> Outage:
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    return Outage(victim=victim, began=start + began, ended=start + ended)


def test_a_further_attempt_is_explained_by_the_death_of_its_worker_or_database_alone() -> None:
    attempt = left(1.0, 5.0)

    assert find_unexplained([attempt], [outage("worker-1", 2.0, 3.0)]) == []
    assert find_unexplained([attempt], [outage("postgres", 2.0, 3.0)]) == []
    assert find_unexplained([attempt], [outage("executor-1", 2.0, 3.0)]) == [attempt], "an executor holds no attempt"
    assert find_unexplained([attempt], [outage("worker-1", 6.0, 7.0)]) == [attempt], "it was given up before"
    assert find_unexplained([attempt], [outage("worker-1", 0.0, 0.5)]) == [attempt], "it was placed after"
    assert find_unexplained([left(1.0, 5.0, "worker had no free slot")], []) == [], "given back, not tried"
