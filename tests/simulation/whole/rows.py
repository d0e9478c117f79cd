"""Rows as the statements of `storage` see them, reduced to what decisions rest on.

Without slots: a row is copied before it is changed, and copying a dictionary is quick.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from attune.domain.definitions import Isolation, OnWorkerLost, RetryPolicy, Runner
from attune.domain.execution import Status
from attune.domain.json_values import Json
from attune.domain.lines import LineKey
from attune.domain.placement import Requirements


@dataclass(kw_only=True)
class ActionRow:
    """What can be run."""

    id: int
    ref: str
    runner: Runner = Runner.SHELL
    labels: dict[str, Json] = field(default_factory=dict)
    isolation: Isolation | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    idempotent: bool = False
    on_worker_lost: OnWorkerLost | None = None
    timeout_seconds: float = 300.0
    lost_workers: frozenset[UUID] = frozenset()
    quarantined_at: float | None = None
    released_at: float | None = None
    pool: int = 0

    @property
    def requirements(self) -> Requirements:
        return Requirements(runner=self.runner, labels=self.labels, isolation=self.isolation)


@dataclass(kw_only=True)
class PolicyRow:
    """What holds the executions of an action in line."""

    id: int
    action_id: int
    limit: int | None
    parameters: tuple[str, ...] = ("g",)
    max_queue_length: int = 1000
    queue_timeout_seconds: float | None = None
    keeps_place: bool = True


@dataclass(kw_only=True)
class ExecutionRow:
    """One execution."""

    id: int
    action: int
    status: Status
    created: float
    priority: int = 0
    attempt: int = 0
    tries: int = 0
    placements: int = 0
    max_attempts: int = 1
    timeout_seconds: float = 60.0
    worker: int | None = None
    pinned: bool = False
    parent: int | None = None
    inherits: int | None = None
    line_id: int | None = None
    line_seq: int | None = None
    cancel_requested: bool = False
    not_before: float | None = None
    ended_at: float | None = None
    worker_by: float | None = None
    ttl_seconds: float | None = None
    parameters: dict[str, Json] = field(default_factory=dict)
    result: Json = None
    code: str | None = None
    changed_by: str = ""
    reason: str = ""


@dataclass(kw_only=True)
class AssignmentRow:
    """Which attempt is on which worker."""

    id: int
    attempt: int
    worker_id: int
    worker_instance: UUID | None
    lease: UUID
    placed_at: float
    started_at: float | None = None
    lease_until: float | None = None
    deadline: float | None = None


@dataclass(kw_only=True)
class UnplacedRow:
    """Who waits for room on a worker."""

    id: int
    pool: int
    priority: int
    action_id: int
    since: float


@dataclass(kw_only=True)
class WorkerRow:
    """One worker, by its name."""

    id: int
    name: str
    instance: UUID
    runtimes: frozenset[str]
    labels: dict[str, Json]
    capacity: int
    heartbeat_interval: float
    last_heartbeat: float
    pid: int = 0
    status: str = "active"
    cordoned: bool = False
    leaving: bool = False
    marked_full: bool = False
    pinged_at: float | None = None
    awaited_since: float | None = None


@dataclass(kw_only=True)
class LineRow:
    """A line; its entries are rows of their own."""

    id: int
    key: LineKey
    policy_id: int
    limit: int | None
    last_updated: float
    next_seq: int = 1
    next_n: int = 1
    active: int = 0
    waiting: int = 0
    paused: bool = False
    held: bool = False
    resumed_at: float | None = None


@dataclass(kw_only=True)
class EntryRow:
    """An execution in a line."""

    id: int
    line_id: int
    action_id: int
    seq: int
    priority: int
    timeout_from: float
    active: bool = False


@dataclass(kw_only=True)
class OutboxRow:
    """A message on its way."""

    id: int
    topic: str
    type: str
    items: tuple[tuple[int, int], ...]
    created: float
    not_before: float
    deliveries: int = 0
    deaths: tuple[str, ...] = ()


@dataclass(kw_only=True)
class DeadLetterRow:
    """A message that died."""

    id: int
    worker_instance: UUID | None
    parked_at: float
    outcome: str | None
    reason: str = ""


Row = (
    ActionRow
    | PolicyRow
    | ExecutionRow
    | AssignmentRow
    | UnplacedRow
    | WorkerRow
    | LineRow
    | EntryRow
    | OutboxRow
    | DeadLetterRow
)
