"""What every runner is given, and what it gives back: one attempt in, one ending out."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from attune.domain.execution import Failure
from attune.domain.json_values import Json
from attune.domain.retry import Ending, Outcome
from attune.domain.secrecy.masking import Masker
from attune.storage.executions import Startable

ARTIFACT_BYTES_MAX: Final = 64 * 1024 * 1024


class Stream(StrEnum):
    """Where an action prints."""

    STDOUT = "stdout"
    STDERR = "stderr"


class StopReason(StrEnum):
    """Why an attempt is ended before its time."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    SHUTDOWN = "worker_shutdown"
    # The worker could not renew the lease in time; another worker may soon be given the execution.
    LEASE_LOST = "lease_lost"
    # The database says that the attempt is over.
    FENCED = "fenced"


# These leave no time for good manners: what runs must be gone before anybody else starts it.
AT_ONCE = frozenset({StopReason.LEASE_LOST, StopReason.FENCED})

_RANK = {reason: rank for rank, reason in enumerate(StopReason)}


class Stop:
    """A request to end an attempt early; the runner hears of it at once, and again if it becomes more urgent."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self._listener: Callable[[StopReason], object] | None = None

    def request(self, reason: StopReason) -> None:
        """Ask. The first reason stays, unless a later one means that the attempt is no longer ours."""
        if self.reason is not None and (reason not in AT_ONCE or _RANK[reason] <= _RANK[self.reason]):
            return
        self.reason = reason
        if self._listener is not None:
            self._listener(reason)

    def listen(self, listener: Callable[[StopReason], object]) -> None:
        """Be called with the reason; at once, if it was asked before."""
        self._listener = listener
        if self.reason is not None:
            listener(self.reason)

    def forget_listener(self) -> None:
        """Nothing runs any more."""
        self._listener = None


class TooLate(Exception):
    """The lease may have run out before anything was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a runner is to run."""

    work: Startable
    stop: Stop
    worker: str
    # Raises TooLate. To be called immediately before the first thing that has an effect.
    check_clock: Callable[[], None]
    # For the API; ends with the attempt.
    token: str | None = field(default=None, repr=False)
    # Takes out of what is kept whatever must not be seen; runners need it only for what is cut before it is kept.
    masker: Masker = field(default_factory=Masker, repr=False)
    # A result between what fits a row and this becomes an artifact.
    artifact_bytes_max: int = ARTIFACT_BYTES_MAX


class Output(Protocol):
    """Where an attempt's output goes."""

    async def write(self, stream: Stream, content: bytes) -> None:
        """Keep what was printed, as far as the limits allow."""


class Runner(Protocol):
    """Runs attempts of one kind of action."""

    async def run(self, attempt: Attempt, output: Output) -> Ending:
        """Run it to its end, or until it is asked to stop; leaves nothing running behind."""


def succeeded(result: Json, *, exit_code: int | None = None) -> Ending:
    return Ending(outcome=Outcome.SUCCEEDED, result=result, exit_code=exit_code)


def failed(attempt: Attempt, code: str, message: str, *, result: Json = None, exit_code: int | None = None) -> Ending:
    failure = Failure(code=code, message=message, by=attempt.worker)
    return Ending(outcome=Outcome.FAILED, result=result, failure=failure, exit_code=exit_code)


_STOPPED: dict[StopReason, tuple[Outcome, str]] = {
    StopReason.CANCELLED: (Outcome.CANCELLED, "cancelled while running"),
    StopReason.TIMEOUT: (Outcome.TIMEOUT, "did not end within {timeout:g} s"),
    StopReason.SHUTDOWN: (Outcome.WORKER_LOST, "the worker was shut down"),
    StopReason.LEASE_LOST: (Outcome.WORKER_LOST, "the worker could not reach the database and stopped the action"),
    StopReason.FENCED: (Outcome.WORKER_LOST, "the attempt was no longer this worker's"),
}


def stopped(attempt: Attempt, reason: StopReason, *, result: Json = None) -> Ending:
    """The ending of an attempt that was ended early."""
    outcome, text = _STOPPED[reason]
    failure = Failure(code=str(reason), message=text.format(timeout=attempt.work.timeout_seconds), by=attempt.worker)
    return Ending(outcome=outcome, result=result, failure=failure)
