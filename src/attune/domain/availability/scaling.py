"""How many workers each pool wants: enough for what runs, and for what waits to be gone soon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from attune.domain.json_values import Json

# What waits shall be gone within this time; a backlog that will be is no reason for another worker.
DRAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDemand:
    """What a pool has to do, and who is there to do it."""

    # A 64-bit number as text: not every reader of JSON keeps that many digits.
    pool: str
    runner: str
    labels: Mapping[str, Json]
    isolation: str | None
    running: int
    # Those who wait for room on a worker, and those whose line waits for any worker; counting ends at a limit.
    backlog: int
    completions_per_second: float
    # How many of its dispatches no worker took in time, within the last minute.
    dead_letters_per_minute: int
    workers: int
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """How many workers a pool wants, and how long its backlog lasts at the present speed."""

    demand: PoolDemand
    wanted: int
    backlog_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingChange:
    """That a pool wants another number of workers than before."""

    pool: str
    runner: str
    labels: Mapping[str, Json]
    isolation: str | None
    wanted_before: int
    wanted: int
    backlog: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The workers that may be given work, whatever they can run."""

    workers: int
    capacity: int


def plan_pool(demand: PoolDemand, fleet: Fleet) -> PoolPlan:
    """As many as its slots need, but no more than make its backlog go away in time."""
    each = _capacity_each(demand.workers, demand.capacity) or _capacity_each(fleet.workers, fleet.capacity) or 1
    busy = ceil(demand.running / each)
    wanted = ceil((demand.running + demand.backlog) / each)
    rate = demand.completions_per_second
    seconds = demand.backlog / rate if rate > 0 else None
    if seconds is not None and demand.workers:
        in_time = ceil(demand.workers * seconds / DRAIN_SECONDS)
        wanted = min(wanted, max(busy, in_time))
    return PoolPlan(demand=demand, wanted=wanted, backlog_seconds=seconds if demand.backlog else 0.0)


def changes_of(plans: Sequence[PoolPlan], last: Sequence[ScalingChange]) -> list[ScalingChange]:
    """What is news after the last change of each pool. A pool that was never told of, or is idle, wants nobody."""
    before = {each.pool: each.wanted for each in last}
    told = [
        ScalingChange(
            pool=plan.demand.pool,
            runner=plan.demand.runner,
            labels=plan.demand.labels,
            isolation=plan.demand.isolation,
            wanted_before=before.get(plan.demand.pool, 0),
            wanted=plan.wanted,
            backlog=plan.demand.backlog,
            workers=plan.demand.workers,
        )
        for plan in plans
    ]
    busy = {each.pool for each in told}
    told += [replace(each, wanted_before=each.wanted, wanted=0, backlog=0) for each in last if each.pool not in busy]
    return [each for each in told if each.wanted != each.wanted_before]


def plan_fleet(plans: Sequence[PoolPlan], fleet: Fleet) -> int:
    """How many workers all pools want together; a pool that no worker here can run wants workers of another kind."""
    each = _capacity_each(fleet.workers, fleet.capacity)
    if each is None:
        return max((plan.wanted for plan in plans), default=0)
    slots = sum(_slots(plan, each) for plan in plans if plan.demand.workers)
    return ceil(slots / each)


def _slots(plan: PoolPlan, each: float) -> float:
    return min(plan.demand.running + plan.demand.backlog, plan.wanted * each)


def _capacity_each(workers: int, capacity: int) -> float | None:
    return capacity / workers if workers and capacity else None
