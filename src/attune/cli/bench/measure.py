"""One run of one workload: send, wait, read the witnesses, divide."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from attune.cli.bench.client import BenchClient
from attune.cli.bench.judge import Evidence, Verdict, judge
from attune.cli.bench.pack import warm_up_ref
from attune.cli.bench.throwaway import Stage
from attune.cli.bench.usage import Usage, cpu_us_per, usage
from attune.cli.bench.workloads import Workload
from attune.client.models import Admission, Execution
from attune.storage.upkeep.yardstick import count_commits, list_doubled

WARM_UP: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Milliseconds: the usual, and the worst of a hundred."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run came to."""

    workload: Workload
    per_second: float
    verdict: Verdict
    # From the request, and from the slot, to the start; from the request to the end.
    start_ms: Spread
    slot_to_start_ms: Spread
    done_ms: Spread
    cpu_us: Mapping[str, int]
    commits_per_execution: float
    memory_mb: Mapping[str, float] = field(default_factory=dict)
    # How far behind its own schedule the client was, and how many it did send in a second.
    late_ms: Spread | None = None
    sent_per_second: float | None = None
    kills: Mapping[str, int] = field(default_factory=dict)
    # Attempts beyond the first.
    repeated: int = 0
    evidence: Evidence | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """How things stood when a measurement began."""

    at: float
    pids: Mapping[str, int]
    used: Mapping[str, Usage]
    commits: int


async def measure(stage: Stage, workload: Workload, *, batch: int) -> Run:
    """Send everything and wait until the last has ended."""
    await warm_up(stage, workload)
    client = BenchClient(stage.wire, workload.title, batch=batch)
    beginning = await begin(stage)
    await client.send(workload.refs, workload.executions)
    return await conclude(stage, workload, client, beginning)


async def begin(stage: Stage) -> Beginning:
    """Look at every counter; the last thing before the first request."""
    pids = await stage.processes()
    return Beginning(pids=pids, used=usage(pids), commits=await count_commits_of(stage), at=time.time())


async def conclude(stage: Stage, workload: Workload, client: BenchClient, beginning: Beginning) -> Run:
    """Wait until everything that was sent has ended, then look at the counters and hear the witnesses."""
    await client.wait_for_last()
    spent = cpu_us_per(workload.executions, beginning.used, usage(beginning.pids))
    commits = await count_commits_of(stage) - beginning.commits
    executions = await client.read_ended()
    evidence = await _evidence(stage, client, workload, executions)
    ends = [each.ended_at.timestamp() for each in executions if each.ended_at is not None]
    return Run(
        workload=workload,
        per_second=round(len(ends) / (max(ends, default=math.inf) - beginning.at), 1),
        verdict=judge(evidence),
        start_ms=start_ms(executions),
        slot_to_start_ms=slot_to_start_ms(executions, evidence.admissions),
        done_ms=done_ms(executions),
        cpu_us=spent,
        commits_per_execution=round(commits / workload.executions, 2),
        evidence=evidence,
    )


async def warm_up(stage: Stage, workload: Workload) -> None:
    """Connections, caches and prepared statements are there before anything is measured."""
    client = BenchClient(stage.wire, f"warm-up {workload.title}", batch=WARM_UP)
    await client.send([warm_up_ref(workload.runtime)], WARM_UP)
    await client.wait_for_last()
    await client.read_ended()


async def count_commits_of(stage: Stage) -> int:
    """Transactions that wrote something so far."""
    async with stage.database.reading() as tx:
        return await count_commits(tx)


async def _evidence(stage: Stage, client: BenchClient, workload: Workload, executions: Sequence[Execution]) -> Evidence:
    admissions: dict[str, Sequence[Admission]] = {}
    # An action that had no execution has no line.
    for ref in workload.refs[: workload.executions] if workload.limit is not None else ():
        admissions[ref] = await client.read_admissions((await client.find_line(ref)).id)
    return Evidence(
        accepted=client.accepted,
        executions=executions,
        admissions=admissions,
        limit=workload.limit,
        doubled_starts=await doubled_starts(stage, client.trace_tag),
    )


async def doubled_starts(stage: Stage, trace_tag: str) -> set[int]:
    """Executions that started twice in one attempt: by the history, and by what shell actions noted themselves."""
    async with stage.database.reading() as tx:
        recorded = await list_doubled(tx, trace_tag)
    noted = Counter(stage.ledger.read_text(encoding="ascii").splitlines())
    return {*recorded, *(int(line.split()[0]) for line, times in noted.items() if times > 1)}


def start_ms(executions: Sequence[Execution]) -> Spread:
    """From the request to the start."""
    return spread([_ms(each.created, each.started_at) for each in executions if each.created and each.started_at])


def done_ms(executions: Sequence[Execution]) -> Spread:
    """From the request to the end."""
    return spread([_ms(each.created, each.ended_at) for each in executions if each.created and each.ended_at])


def slot_to_start_ms(executions: Sequence[Execution], admissions: Mapping[str, Sequence[Admission]]) -> Spread:
    """From the slot to the start; zero where one transaction did both, whose `now()` is its beginning."""
    got = {row.execution_id: row.at for log in admissions.values() for row in log if row.op == "admit"}
    starts = [(at, each.started_at) for each in executions if (at := got.get(each.id)) and each.started_at]
    return spread([max(0.0, _ms(at, started_at)) for at, started_at in starts])


def _ms(begin: datetime, end: datetime) -> float:
    return (end - begin).total_seconds() * 1000


def spread(values: Sequence[float]) -> Spread:
    """By the nearest rank; zero where there is nothing."""
    ordered = sorted(values) or [0.0]

    def rank(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1], 2)

    return Spread(p50=rank(0.5), p99=rank(0.99))
