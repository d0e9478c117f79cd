"""The whole measurement: platforms one after the other, and on each the workloads that were asked for."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypedDict

from attune.cli.bench.backlog import ADMISSIONS, measure_backlogs
from attune.cli.bench.broker import require_unused
from attune.cli.bench.killing import SETTINGS as KILLED_SETTINGS
from attune.cli.bench.killing import measure_killed
from attune.cli.bench.machine import Machine, look_at_machine
from attune.cli.bench.measure import Run, measure
from attune.cli.bench.paced import measure_paced
from attune.cli.bench.pack import write_pack
from attune.cli.bench.throwaway import Stage, throw_away_platform
from attune.cli.bench.usage import cpu_share, usage
from attune.cli.bench.workloads import (
    BACKLOGS,
    FULL_BACKLOG,
    Workload,
    backlog_workloads,
    killed_workload,
    one_by_one,
    paced_workloads,
    replica_workloads,
    simple_workloads,
)
from attune.client import calls

BACKLOG_ROUNDS: Final = 3

Say = Callable[[str], None]


class Way(Protocol):
    """One way to measure a workload."""

    async def __call__(self, stage: Stage, workload: Workload, *, batch: int) -> Run: ...


class _Sizes(TypedDict):
    quick: bool
    executions: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for."""

    names: Sequence[str]
    runtimes: Sequence[str]
    quick: bool = False
    full: bool = False
    executions: int | None = None
    batch: int
    repeat: int
    broker_url: str | None = None
    idle_seconds: float = 0.0

    @property
    def settings(self) -> Mapping[str, str]:
        """What the platforms run with, beyond what is shipped."""
        return {"ATTUNE__MESSAGE_QUEUE__URL": self.broker_url} if self.broker_url else {}

    @property
    def transport(self) -> str:
        return "rabbitmq" if self.broker_url else "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """What a platform with nothing to do uses."""

    seconds: float
    cpu_percent: Mapping[str, float]
    memory_mb: Mapping[str, float]


@dataclass(slots=True, kw_only=True)
class Findings:
    """Everything that was measured, in the order it was."""

    runs: list[Run] = field(default_factory=list)
    one_by_one: list[Run] = field(default_factory=list)
    machine: list[Machine] = field(default_factory=list)
    idle: Idle | None = None


async def run_bench(plan: Plan, say: Say) -> Findings:
    """Measure everything the plan names."""
    findings = Findings()
    if plan.broker_url:
        await require_unused(plan.broker_url)
    for number in range(plan.repeat if set(plan.names) - {"W5"} else 0):
        await _repeat(plan, findings, partial(_say_of, say, f"{number + 1} of {plan.repeat}: "))
    if "W5" in plan.names:
        findings.runs += await _measure_backlogs(plan, say)
    return findings


async def _repeat(plan: Plan, findings: Findings, say: Say) -> None:
    """Everything once, but for the backlogs."""
    sizes: _Sizes = {"quick": plan.quick, "executions": plan.executions}
    simple = simple_workloads(plan.names, plan.runtimes, **sizes)
    paced = paced_workloads(**sizes) if "W4" in plan.names else []
    replicas = replica_workloads(**sizes) if "W6" in plan.names else []
    if simple or paced or replicas:
        async with throw_away_platform(plan.settings) as stage:
            if plan.idle_seconds and findings.idle is None:
                findings.idle = await _measure_idle(stage, plan.idle_seconds)
            findings.machine.append(await look_at_machine(stage.home.root, stage.database))
            findings.runs += await _measure_all(stage, [*simple, *paced, *replicas], plan, say)
    if simple:
        async with throw_away_platform({**plan.settings, "ATTUNE__EXECUTOR__BATCH_MAX": "1"}) as stage:
            singly = [one_by_one(each) for each in simple]
            findings.one_by_one += await _measure_all(stage, singly, plan, partial(_say_of, say, "one by one, "))
    if "W7" in plan.names:
        async with throw_away_platform({**plan.settings, **KILLED_SETTINGS}) as stage:
            findings.runs += await _measure_all(stage, [killed_workload(**sizes)], plan, say)


async def _measure_all(stage: Stage, workloads: Sequence[Workload], plan: Plan, say: Say) -> list[Run]:
    await _install(stage, workloads)
    runs: list[Run] = []
    executors = 1
    for workload in workloads:
        if workload.executors != executors:
            executors = workload.executors
            await stage.scale_executors(executors)
        runs.append(await _way_of(workload)(stage, workload, batch=plan.batch))
        _say_run(runs[-1], say)
    return runs


def _way_of(workload: Workload) -> Way:
    if workload.rate:
        return measure_paced
    return measure_killed if workload.name == "W7" else measure


async def _measure_backlogs(plan: Plan, say: Say) -> list[Run]:
    sizes = BACKLOGS[:2] if plan.quick else (*BACKLOGS, FULL_BACKLOG) if plan.full else BACKLOGS
    workloads = backlog_workloads(sizes, admissions=plan.executions or ADMISSIONS)
    runs: list[Run] = []
    async with throw_away_platform(plan.settings) as stage:
        await _install(stage, workloads[:1])
        async with aclosing(measure_backlogs(stage, workloads, rounds=BACKLOG_ROUNDS)) as measured:
            async for run in measured:
                runs.append(run)
                _say_run(run, say)
    return runs


async def _install(stage: Stage, workloads: Sequence[Workload]) -> None:
    folder = stage.home.root / "bench-pack"
    await asyncio.to_thread(write_pack, folder, workloads, ledger=stage.ledger)
    await stage.client.send(calls.install_pack(str(folder)))


async def _measure_idle(stage: Stage, seconds: float) -> Idle:
    pids = await stage.processes()
    before = usage(pids)
    await asyncio.sleep(seconds)
    after = usage(pids)
    return Idle(
        seconds=seconds,
        cpu_percent={name: round(share * 100, 2) for name, share in cpu_share(seconds, before, after).items()},
        memory_mb={name: round(each.memory_mb, 1) for name, each in after.items()},
    )


def _say_of(say: Say, what: str, text: str) -> None:
    say(f"{what}{text}")


def _say_run(run: Run, say: Say) -> None:
    flaw = "" if run.verdict.clean else f"  {run.verdict}"
    say(f"{run.workload.title}: {run.workload.executions:,} at {run.per_second:,.0f}/s{flaw}")
