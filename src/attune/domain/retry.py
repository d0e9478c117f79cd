"""What follows the end of an attempt: the execution's own end, or another try.

A terminal state is never left, so this is decided before one is written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from attune.domain.definitions import Backoff, OnWorkerLost, RetryPolicy, RetryReason
from attune.domain.execution import Change, Failure, Status
from attune.domain.json_values import Json

# An idempotent action is tried again after losing its worker even where no retry policy says so, but not for ever:
# an action that takes its workers down with it must come to an end.
LOST_TRIES_MAX = 10
# Beyond this the longest delay has long been reached.
DOUBLINGS_MAX = 30


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    WORKER_LOST = "worker_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """A result that is too large for a row: it becomes an artifact, and the row says which."""

    name: str
    media_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known about the end of one attempt."""

    outcome: Outcome
    result: Json = None
    failure: Failure | None = None
    exit_code: int | None = None
    # Stored before the ending is reported; the report knows it by the result.
    large: Large | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The execution whose attempt ended, as it stands."""

    execution_id: int
    status: Status
    attempt: int
    tries: int
    max_attempts: int
    retry: RetryPolicy
    idempotent: bool
    on_worker_lost: OnWorkerLost | None
    # To one worker: nobody else may be given it.
    pinned: bool = False


def decide_ending(running: Running, ending: Ending, *, actor: str, draw: Callable[[], float]) -> Change:
    """The move that follows the end of an attempt."""
    if running.status is Status.CANCELING and ending.outcome is not Outcome.SUCCEEDED:
        return _change(running, ending, Status.CANCELLED, actor=actor, reason="cancelled while running")
    if ending.outcome is Outcome.SUCCEEDED:
        return _change(running, ending, Status.SUCCEEDED, actor=actor)
    if not _tries_again(running, ending):
        return _change(running, ending, _final_status(ending.outcome), actor=actor, reason=_reason(ending))
    delay = _delay(running.retry, running.tries, draw())
    # From `scheduling` any worker would be given it.
    target = Status.REQUESTED if delay > 0 or running.pinned else Status.SCHEDULING
    reason = f"try {running.tries} ended: {_reason(ending)}"
    return _change(running, ending, target, actor=actor, reason=reason, delay_seconds=delay or None)


def _tries_again(running: Running, ending: Ending) -> bool:
    if running.status is Status.CANCELING or ending.outcome is Outcome.CANCELLED:
        return False
    if ending.outcome is Outcome.WORKER_LOST:
        return _tries_again_after_loss(running)
    if running.tries >= running.max_attempts:
        return False
    if ending.outcome is Outcome.TIMEOUT:
        return RetryReason.TIMEOUT in running.retry.retry_on
    return RetryReason.FAILED in running.retry.retry_on or ending.exit_code in running.retry.retry_on


def _tries_again_after_loss(running: Running) -> bool:
    if running.on_worker_lost is OnWorkerLost.FAIL:
        return False
    if RetryReason.WORKER_LOST in running.retry.retry_on and running.tries < running.max_attempts:
        return True
    willing = running.idempotent or running.on_worker_lost is OnWorkerLost.RETRY
    return willing and running.tries < max(running.max_attempts, LOST_TRIES_MAX)


def _final_status(outcome: Outcome) -> Status:
    return Status.FAILED if outcome is Outcome.WORKER_LOST else Status(outcome)


def _reason(ending: Ending) -> str:
    return ending.failure.message if ending.failure else str(ending.outcome)


def _delay(policy: RetryPolicy, tries: int, draw: float) -> float:
    """Full jitter: anywhere between nothing and the delay the policy asks for."""
    factor: dict[Backoff, float] = {
        Backoff.CONSTANT: 1,
        Backoff.LINEAR: tries,
        Backoff.EXPONENTIAL: 2.0 ** min(tries - 1, DOUBLINGS_MAX),
    }
    full = min(policy.delay_seconds * factor[policy.backoff], policy.max_delay_seconds)
    return full * draw


def _change(
    running: Running,
    ending: Ending,
    target: Status,
    *,
    actor: str,
    reason: str = "",
    delay_seconds: float | None = None,
) -> Change:
    return Change(
        execution_id=running.execution_id,
        current=running.status,
        attempt=running.attempt,
        target=target,
        actor=actor,
        reason=reason,
        result=ending.result,
        failure=ending.failure,
        delay_seconds=delay_seconds,
    )
