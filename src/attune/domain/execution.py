"""The life of an execution: its states, and the moves between them.

`TRANSITIONS` is the only table of legal moves; the database's trigger and the diagram in the documentation are
made from it.
"""

from dataclasses import dataclass
from enum import StrEnum

from attune.domain.json_values import Json


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


TERMINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.TIMEOUT, Status.CANCELLED})
# A row in one of these states is on a worker: it has an assignment (unless it is a workflow's parent).
ASSIGNED = frozenset({Status.SCHEDULED, Status.RUNNING, Status.CANCELING})
# The states that a cancel ends at once, because no process can be running.
NOT_STARTED = frozenset({Status.REQUESTED, Status.QUEUED, Status.SCHEDULING, Status.SCHEDULED, Status.WAITING})

TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.REQUESTED: frozenset(
        {
            Status.QUEUED,
            Status.SCHEDULING,
            Status.SCHEDULED,
            Status.RUNNING,
            Status.WAITING,
            Status.CANCELLED,
            Status.FAILED,
        },
    ),
    Status.QUEUED: frozenset(
        {Status.SCHEDULING, Status.SCHEDULED, Status.RUNNING, Status.CANCELLED, Status.FAILED},
    ),
    Status.SCHEDULING: frozenset({Status.SCHEDULED, Status.RUNNING, Status.CANCELLED, Status.FAILED}),
    Status.SCHEDULED: frozenset(
        {Status.RUNNING, Status.SCHEDULING, Status.SCHEDULED, Status.CANCELLED, Status.FAILED},
    ),
    Status.RUNNING: frozenset(
        {
            Status.SUCCEEDED,
            Status.FAILED,
            Status.TIMEOUT,
            Status.CANCELING,
            Status.CANCELLED,
            Status.SCHEDULING,
            Status.REQUESTED,
        },
    ),
    Status.WAITING: frozenset({Status.SUCCEEDED, Status.FAILED, Status.TIMEOUT, Status.CANCELLED}),
    Status.CANCELING: frozenset({Status.CANCELLED, Status.SUCCEEDED, Status.FAILED, Status.TIMEOUT}),
    Status.SUCCEEDED: frozenset(),
    Status.FAILED: frozenset(),
    Status.TIMEOUT: frozenset(),
    Status.CANCELLED: frozenset(),
}

# A row may be born in one of these; the two terminal ones record what was refused, so that nothing vanishes.
BIRTHS = frozenset({Status.REQUESTED, Status.QUEUED, Status.WAITING, Status.FAILED, Status.CANCELLED})


def may_move(current: Status, target: Status) -> bool:
    """Whether the table allows this move."""
    return target in TRANSITIONS[current]


def transition_pairs() -> list[tuple[Status, Status]]:
    """Every legal move, in the order of the table."""
    return [(current, target) for current in Status for target in Status if target in TRANSITIONS[current]]


def diagram() -> str:
    """The state machine as a Mermaid diagram, for the documentation."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {status}" for status in Status if status in BIRTHS]
    lines += [f"    {current} --> {target}" for current, target in transition_pairs()]
    lines += [f"    {status} --> [*]" for status in Status if status in TERMINAL]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an execution did not succeed: a stable code, a sentence for people, and who noticed."""

    code: str
    message: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One guarded move: it happens only if the row is still in `current` with `attempt`."""

    execution_id: int
    current: Status
    attempt: int
    target: Status
    actor: str
    reason: str = ""
    # Set by placement only: the fence grows, and whether this placement counts against the bound.
    worker_id: int | None = None
    placements_added: int = 0
    result: Json = None
    failure: Failure | None = None
    # How long a row that goes back to `requested` waits before it starts again.
    delay_seconds: float | None = None

    @property
    def next_attempt(self) -> int:
        """The attempt after the move: a placement mints a new one."""
        return self.attempt + 1 if self.target is Status.SCHEDULED or self.is_taken else self.attempt

    @property
    def is_taken(self) -> bool:
        """Whether a worker places it on itself and starts it, in one move; the history shows both."""
        return self.current in {Status.QUEUED, Status.SCHEDULING} and self.target is Status.RUNNING
