"""What the API's answers hold, as far as programs rely on it; fields a newer server adds are ignored."""

from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Status(StrEnum):
    """Where an execution stands."""

    REQUESTED = "requested"
    QUEUED = "queued"
    SCHEDULING = "scheduling"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    WAITING = "waiting"
    CANCELING = "canceling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({Status.SUCCEEDED, Status.FAILED, Status.TIMEOUT, Status.CANCELLED})


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list, and the way to the next."""

    items: list[T]
    next_cursor: str | None = None


class ExecutionError(msgspec.Struct, frozen=True, kw_only=True):
    """Why an execution did not succeed."""

    code: str = ""
    message: str = ""
    by: str | None = None


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an action."""

    id: int
    status: Status
    action_ref: str = ""
    attempt: int = 0
    tries: int = 0
    parameters: dict[str, object] = {}
    result: object = None
    error: ExecutionError | str | None = None
    worker: int | str | dict[str, object] | None = None
    trace_tag: str | None = None
    created: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class AcceptedExecution(msgspec.Struct, frozen=True, kw_only=True):
    """The place of one execution in an accepted batch."""

    id: int


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that was accepted, in the order it was sent."""

    executions: list[AcceptedExecution]


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what an action wrote, in the order of `id`."""

    id: int = 0
    stream: str = "stdout"
    text: str = ""
    attempt: int = 0
    at: datetime | None = None


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is too large for its execution."""

    id: int
    execution_id: int
    attempt: int
    name: str
    media_type: str
    bytes: int
    sha256: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that wait for the same slots."""

    id: int
    scope: str = ""
    group: object = None
    limit: int | None = None
    limit_reason: str | None = None
    active: int = 0
    waiting: int = 0
    paused: bool = False
    total_enqueued: int = 0
    total_completed: int = 0


class LineStep(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in an action's lines during one step of time."""

    at: str
    enqueued: int = 0
    admitted: int = 0
    completed: int = 0
    removed: int = 0
    waiting_max: int = 0
    oldest_seconds: float = 0.0


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a line, in the order of `n`."""

    n: int
    op: str
    execution_id: int | None = None
    seq: int | None = None
    priority: int | None = None
    limit_in_force: int | None = None
    active: int | None = None
    reason: str | None = None
    at: datetime | None = None


class Cleared(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines were cleared, and how many executions that cancelled."""

    lines: int
    cancelled: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that died, and what became of it."""

    id: int
    type: str = ""
    reason: str = ""
    outcome: str | None = None


class DeadLetterStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters there are, by what they have in common."""

    depth: int = 0
    open: int = 0
    unhandled: int = 0
    last_minute: int = 0
    groups: list[dict[str, object]] = []


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is, or was, worth a person's attention."""

    id: int
    name: str = ""
    subject: str = ""
    severity: str = ""
    state: str = ""
    message: str = ""


class LateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt reported when it was no longer the current one; never applied."""

    attempt: int
    outcome: str = ""
    worker: int | None = None
    at: datetime | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an execution is where it is."""

    sentence: str
    code: str
    facts: dict[str, object] = {}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that can be run."""

    ref: str
    runner: str = ""
    description: str | None = None
    pack: int | str | None = None
    parameters: dict[str, object] | None = None
    workers_lost: int = 0
    quarantined_at: datetime | None = None


class Pack(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of definitions that was installed."""

    ref: str
    version: str = ""
    description: str | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs actions."""

    id: int
    name: str
    status: str
    capacity: int | None = None
    load: int | None = None
    cordoned: bool = False


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is being emptied, and how many executions it gave back."""

    worker: Worker
    handed_back: int


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A new token; the secret is shown this once."""

    id: int
    name: str
    secret: str


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What a password was exchanged for."""

    access_token: str | None = None
    token: str | None = None
    secret: str | None = None
