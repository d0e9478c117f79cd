"""What is asked and answered about workers."""

from collections.abc import Mapping
from typing import Literal, Self

import msgspec

from attune.api.pages import LIMIT_DEFAULT, Cursor, Limit
from attune.domain.availability.scaling import PoolPlan
from attune.domain.json_values import Json
from attune.storage.availability.scaling_changes import ToldChange
from attune.storage.views.workers import WorkerView


class WorkerQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which workers."""

    status: Literal["active", "unresponsive", "draining", "inactive", "lost"] | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["id"] = "id"


class DrainAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """A worker that is being drained: what it still runs is its load."""

    worker: WorkerView
    handed_back: int


class PoolScaling(msgspec.Struct, kw_only=True, frozen=True):
    """One pool: what it asks of a worker, what it has to do, and how many workers it wants."""

    pool: str
    runner: str
    labels: Mapping[str, Json]
    isolation: str | None
    running: int
    backlog: int
    completions_per_second: float
    backlog_seconds: float | None
    dead_letters_per_minute: int
    workers: int
    capacity: int
    wanted: int

    @classmethod
    def of(cls, plan: PoolPlan) -> Self:
        demand = plan.demand
        return cls(
            pool=demand.pool,
            runner=demand.runner,
            labels=demand.labels,
            isolation=demand.isolation,
            running=demand.running,
            backlog=demand.backlog,
            completions_per_second=demand.completions_per_second,
            backlog_seconds=plan.backlog_seconds,
            dead_letters_per_minute=demand.dead_letters_per_minute,
            workers=demand.workers,
            capacity=demand.capacity,
            wanted=plan.wanted,
        )


class ScalingAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """How many workers there are and how many are wanted, together and in each pool that is not idle."""

    workers: int
    capacity: int
    wanted: int
    pools: list[PoolScaling]
    # The newest first.
    changes: list[ToldChange]
