"""What an admission costs out of a line that grows longer and longer.

A paused line is filled; then it is resumed until a fixed number has left it, and paused again. The same number leaves
every line, so that only the length of what stays behind differs.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from attune.cli.bench.client import PATIENCE_SECONDS, POLL_SECONDS, BenchClient
from attune.cli.bench.judge import Evidence, judge
from attune.cli.bench.measure import Run, count_commits_of, done_ms, slot_to_start_ms, start_ms
from attune.cli.bench.throwaway import Stage
from attune.cli.bench.usage import Usage, cpu_share, cpu_us_per, usage
from attune.cli.bench.workloads import Workload
from attune.client.models import Admission, Line

ADMISSIONS: Final = 1_000
BATCH: Final = 1_000
# After a fill the database writes, vacuums and analyses for a while, which is not what an admission costs.
QUIET_CORE_SHARE: Final = 0.05
QUIET_LOOK_SECONDS: Final = 1.0
QUIET_SECONDS_MAX: Final = 90.0


@dataclass(slots=True, kw_only=True)
class _Queue:
    """The one line all backlogs are in, and how far its log was read."""

    client: BenchClient
    ref: str
    line_id: int
    # One was let through to make the line.
    left: int = 1
    logged: int = 0

    async def look(self) -> Line:
        return await self.client.find_line(self.ref)

    async def read_new(self) -> list[Admission]:
        rows = await self.client.read_admissions(self.line_id, after=self.logged)
        self.logged = rows[-1].n if rows else self.logged
        return rows


async def measure_backlogs(stage: Stage, workloads: Sequence[Workload], *, rounds: int) -> AsyncGenerator[Run]:
    """Each backlog, so many times; every round begins with a line of the same length."""
    client = BenchClient(stage.client, "W5", batch=BATCH)
    (ref,) = workloads[0].refs
    await client.send([ref], 1)
    await client.wait_for_last()
    queue = _Queue(client=client, ref=ref, line_id=(await client.find_line(ref)).id)
    await client.pause(queue.line_id)
    await queue.read_new()
    for workload in workloads:
        for _ in range(rounds):
            yield await _measure(stage, queue, workload)


async def _measure(stage: Stage, queue: _Queue, workload: Workload) -> Run:
    wanted = workload.backlog + workload.executions
    await queue.client.send([queue.ref], wanted - (await queue.look()).waiting)
    await queue.read_new()
    pids = await stage.processes()
    used, commits = await _quiet(pids), await count_commits_of(stage)
    began = time.perf_counter()
    await _let_through(queue, workload.backlog)
    seconds = time.perf_counter() - began
    after, commits = usage(pids), await count_commits_of(stage) - commits
    log = await queue.read_new()
    count = sum(1 for row in log if row.op == "admit")
    ids = queue.client.accepted[queue.left : queue.left + count]
    queue.left += count
    executions = [each for each in await queue.client.read(queue.left) if each.id in set(ids)]
    admissions = {queue.ref: log}
    return Run(
        workload=workload,
        per_second=round(count / seconds, 1),
        verdict=judge(Evidence(accepted=ids, executions=executions, admissions=admissions, limit=workload.limit)),
        start_ms=start_ms(executions),
        slot_to_start_ms=slot_to_start_ms(executions, admissions),
        done_ms=done_ms(executions),
        cpu_us=cpu_us_per(count, used, after),
        commits_per_execution=round(commits / max(count, 1), 2),
        memory_mb={name: round(each.memory_mb, 1) for name, each in after.items()},
    )


async def _let_through(queue: _Queue, backlog: int) -> None:
    """Until only the backlog waits, and nobody holds a slot any more."""
    await queue.client.resume(queue.line_id)
    await _until(queue, lambda line: line.waiting <= backlog)
    await queue.client.pause(queue.line_id)
    await _until(queue, lambda line: line.active == 0)


async def _until(queue: _Queue, holds: Callable[[Line], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(await queue.look()):  # noqa: ASYNC110 - another process's work, seen only by looking
            await asyncio.sleep(POLL_SECONDS)


async def _quiet(pids: dict[str, int]) -> dict[str, Usage]:
    """What was used once hardly anything is being used any more."""
    deadline = time.monotonic() + QUIET_SECONDS_MAX
    while True:
        before = usage(pids)
        await asyncio.sleep(QUIET_LOOK_SECONDS)
        after = usage(pids)
        busy = sum(cpu_share(QUIET_LOOK_SECONDS, before, after).values())
        if busy < QUIET_CORE_SHARE or time.monotonic() > deadline:
            return after
