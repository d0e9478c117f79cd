"""What is measured: how many executions of how many actions, at which limit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

PACK: Final = "bench"
RUNTIMES: Final = ("native", "shell", "python")
NAMES: Final = ("W0", "W1", "W2", "W3", "W4", "W5", "W6", "W7")
QUICK_NAMES: Final = ("W1", "W2", "W3")
# One by one is an order of magnitude slower; a tenth of the work says as much, if it is not too little.
ONE_BY_ONE_SHARE: Final = 10
ONE_BY_ONE_MIN: Final = 100
BACKLOGS: Final = (1_000, 10_000, 100_000)
FULL_BACKLOG: Final = 1_000_000
EXECUTORS: Final = (1, 2, 3)
RATES: Final = (50, 500, 2_000)
PACED_SECONDS: Final = 10
PACED_SECONDS_QUICK: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Executions spread evenly over some actions, each with a line of its own; no limit, no line."""

    name: str
    runtime: str
    executions: int
    limit: int | None
    actions: int = 1
    executors: int = 1
    # The workload that is repeated with another number of executors.
    like: str | None = None
    # How many more wait in the line than are measured.
    backlog: int = 0
    # Requests that fall due in a second, whatever became of those before; none: as fast as answers come.
    rate: int | None = None

    @property
    def title(self) -> str:
        """Its name for people and for trace tags: `W1 native`."""
        more = [f"like {self.like}"] if self.like else []
        more += [f"executors={self.executors}"] if self.name == "W6" else []
        more += [f"at {self.backlog:,} waiting"] if self.name == "W5" else []
        more += [f"at {self.rate:,} per second"] if self.rate else []
        return " ".join([self.name, self.runtime, *more])

    @property
    def refs(self) -> list[str]:
        """Its actions. Each workload has its own, and so its lines begin empty."""
        more = [f"{self.like}_{self.executors}"] if self.like else []
        more += [str(self.rate)] if self.rate else []
        stem = "_".join([self.name, self.runtime, *more]).lower()
        return [f"{PACK}.{stem}_{number}" for number in range(self.actions)]


_FULL: Final = (
    Workload(name="W0", runtime="", executions=10_000, limit=None),
    Workload(name="W1", runtime="", executions=1_000, limit=5),
    Workload(name="W2", runtime="", executions=10_000, limit=10),
    Workload(name="W3", runtime="", executions=10_000, limit=10, actions=100),
)
_QUICK: Final = (
    Workload(name="W0", runtime="", executions=1_000, limit=None),
    Workload(name="W1", runtime="", executions=1_000, limit=5),
    Workload(name="W2", runtime="", executions=2_000, limit=10),
    Workload(name="W3", runtime="", executions=1_000, limit=10, actions=20),
)


def simple_workloads(
    names: Sequence[str], runtimes: Sequence[str], *, quick: bool, executions: int | None
) -> list[Workload]:
    """Those that send everything and wait for its end, for each runtime."""
    return [
        _sized(replace(workload, runtime=runtime), executions)
        for workload in (_QUICK if quick else _FULL)
        if workload.name in names
        for runtime in runtimes
    ]


def replica_workloads(*, quick: bool, executions: int | None) -> list[Workload]:
    """W2 and W3 again, on one, two and three executors."""
    return [
        _sized(replace(workload, name="W6", like=workload.name, executors=executors, runtime="native"), executions)
        for executors in EXECUTORS
        for workload in (_QUICK if quick else _FULL)
        if workload.name in {"W2", "W3"}
    ]


def backlog_workloads(backlogs: Sequence[int], *, admissions: int) -> list[Workload]:
    """The same few admissions out of ever longer lines."""
    return [
        Workload(name="W5", runtime="native", executions=admissions, limit=10, backlog=backlog) for backlog in backlogs
    ]


def paced_workloads(*, quick: bool, executions: int | None) -> list[Workload]:
    """Requests that come when they come, at ever higher rates."""
    seconds = PACED_SECONDS_QUICK if quick else PACED_SECONDS
    return [
        _sized(
            Workload(name="W4", runtime="native", executions=rate * seconds, limit=10, actions=10, rate=rate),
            executions,
        )
        for rate in RATES
    ]


def killed_workload(*, quick: bool, executions: int | None) -> Workload:
    """W3 once more, for a platform whose processes are killed meanwhile."""
    (like,) = (each for each in (_QUICK if quick else _FULL) if each.name == "W3")
    return _sized(replace(like, name="W7", runtime="native"), executions)


def one_by_one(workload: Workload) -> Workload:
    """A smaller share of the same workload."""
    fewer = max(workload.executions // ONE_BY_ONE_SHARE, min(ONE_BY_ONE_MIN, workload.executions))
    return replace(workload, executions=fewer)


def _sized(workload: Workload, executions: int | None) -> Workload:
    return workload if executions is None else replace(workload, executions=executions)
