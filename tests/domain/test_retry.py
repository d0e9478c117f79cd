"""What follows the end of an attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.domain.definitions import Backoff, OnWorkerLost, RetryPolicy, RetryReason
from attune.domain.execution import Failure, Status, may_move
from attune.domain.retry import LOST_TRIES_MAX, Ending, Outcome, Running, decide_ending

FAILURE = Failure(code="exit_code", message="exited with 3", by="worker")


def running(**changes: object) -> Running:
    facts: dict[str, object] = {
        "execution_id": 1,
        "status": Status.RUNNING,
        "attempt": 1,
        "tries": 1,
        "max_attempts": 1,
        "retry": RetryPolicy(),
        "idempotent": False,
        "on_worker_lost": None,
    }
    return Running(**(facts | changes))  # type: ignore[arg-type]  # the facts above are complete


def ended(outcome: Outcome, *, exit_code: int | None = None) -> Ending:
    return Ending(outcome=outcome, failure=FAILURE, exit_code=exit_code)


def half() -> float:
    return 0.5


def target_of(run: Running, ending: Ending) -> Status:
    return decide_ending(run, ending, actor="test", draw=half).target


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.SUCCEEDED, Status.SUCCEEDED),
        (Outcome.FAILED, Status.FAILED),
        (Outcome.TIMEOUT, Status.TIMEOUT),
        (Outcome.CANCELLED, Status.CANCELLED),
        (Outcome.WORKER_LOST, Status.FAILED),
    ],
)
def test_without_a_policy_every_end_is_the_end(outcome: Outcome, status: Status) -> None:
    assert target_of(running(), ended(outcome)) is status


def test_pinned_work_is_never_offered_to_any_worker() -> None:
    policy = RetryPolicy(max_attempts=3)
    pinned = running(tries=1, max_attempts=3, retry=policy, pinned=True)

    change = decide_ending(pinned, ended(Outcome.FAILED), actor="test", draw=half)

    assert change.target is Status.REQUESTED
    assert change.delay_seconds is None


def test_a_failure_is_tried_again_at_once_until_the_attempts_are_spent() -> None:
    policy = RetryPolicy(max_attempts=3)

    assert target_of(running(tries=2, max_attempts=3, retry=policy), ended(Outcome.FAILED)) is Status.SCHEDULING
    assert target_of(running(tries=3, max_attempts=3, retry=policy), ended(Outcome.FAILED)) is Status.FAILED


def test_only_the_exit_codes_named_are_tried_again() -> None:
    policy = RetryPolicy(max_attempts=3, retry_on=frozenset({75}))
    run = running(max_attempts=3, retry=policy)

    assert target_of(run, ended(Outcome.FAILED, exit_code=75)) is Status.SCHEDULING
    assert target_of(run, ended(Outcome.FAILED, exit_code=1)) is Status.FAILED
    assert target_of(run, ended(Outcome.TIMEOUT)) is Status.TIMEOUT


def test_a_delayed_retry_goes_back_to_requested_with_a_delay_that_grows_and_is_bounded() -> None:
    policy = RetryPolicy(max_attempts=9, delay_seconds=10, backoff=Backoff.EXPONENTIAL, max_delay_seconds=60)
    delays = [
        decide_ending(
            running(tries=tries, max_attempts=9, retry=policy), ended(Outcome.FAILED), actor="test", draw=half
        ).delay_seconds
        for tries in range(1, 6)
    ]

    assert delays == [5, 10, 20, 30, 30]


def test_an_idempotent_action_survives_lost_workers_but_not_for_ever() -> None:
    assert target_of(running(idempotent=True), ended(Outcome.WORKER_LOST)) is Status.SCHEDULING
    spent = running(idempotent=True, tries=LOST_TRIES_MAX)
    assert target_of(spent, ended(Outcome.WORKER_LOST)) is Status.FAILED


def test_a_lost_worker_is_forgiven_where_the_policy_or_the_action_says_so() -> None:
    policy = RetryPolicy(max_attempts=2, retry_on=frozenset({RetryReason.WORKER_LOST}))

    assert target_of(running(max_attempts=2, retry=policy), ended(Outcome.WORKER_LOST)) is Status.SCHEDULING
    assert target_of(running(on_worker_lost=OnWorkerLost.RETRY), ended(Outcome.WORKER_LOST)) is Status.SCHEDULING
    refused = running(idempotent=True, on_worker_lost=OnWorkerLost.FAIL)
    assert target_of(refused, ended(Outcome.WORKER_LOST)) is Status.FAILED


@given(outcome=st.sampled_from(Outcome), tries=st.integers(1, 20), idempotent=st.booleans())
def test_a_cancelled_execution_is_never_tried_again(outcome: Outcome, tries: int, *, idempotent: bool) -> None:
    run = running(
        status=Status.CANCELING, tries=tries, max_attempts=20, retry=RetryPolicy(max_attempts=20), idempotent=idempotent
    )

    expected = Status.SUCCEEDED if outcome is Outcome.SUCCEEDED else Status.CANCELLED
    assert target_of(run, ended(outcome)) is expected


@given(
    status=st.sampled_from([Status.RUNNING, Status.CANCELING]),
    outcome=st.sampled_from(Outcome),
    tries=st.integers(1, 12),
    max_attempts=st.integers(1, 12),
    delay=st.floats(0, 100),
    backoff=st.sampled_from(Backoff),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_every_decision_is_a_legal_move(
    *, status: Status, outcome: Outcome, tries: int, max_attempts: int, delay: float, backoff: Backoff, draw: float
) -> None:
    policy = RetryPolicy(max_attempts=max_attempts, delay_seconds=delay, backoff=backoff)
    run = running(status=status, tries=tries, max_attempts=max_attempts, retry=policy)

    change = decide_ending(run, ended(outcome), actor="test", draw=lambda: draw)

    assert may_move(status, change.target)
    assert (change.delay_seconds is not None) == (change.target is Status.REQUESTED)
