"""A workload while the processes that carry it out are killed: executor, worker, database.

The supervisor starts them again. What is asked is how much slower it gets, and that nothing is lost, done twice or out
of order. An execution whose worker or database died has another attempt; each of those must be explained by a kill.
"""

import asyncio
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from attune.cli.bench.client import PATIENCE_SECONDS, POLL_SECONDS, BenchClient
from attune.cli.bench.measure import Run, begin, conclude, warm_up
from attune.cli.bench.throwaway import Stage
from attune.cli.bench.workloads import Workload
from attune.operations.attend_workers import FULL
from attune.storage.upkeep.yardstick import LeftAttempt, list_left_attempts

VICTIMS: Final = ("executor-1", "worker-1", "postgres")
# Whose death may cost an attempt: the worker itself, and the database without which it cannot keep its leases.
BLAMED: Final = frozenset({"worker-1", "postgres"})
# Kept short, so that what a dead worker held is not waited for longer than all the rest takes.
SETTINGS: Final = {"ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1", "ATTUNE__EXECUTOR__NO_WORKER_GRACE_SECONDS": "60"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """From just before a process was killed to when another had its place."""

    victim: str
    began: float
    ended: float


@dataclass(slots=True, kw_only=True)
class Killing:
    """Who was killed so far, and when."""

    outages: list[Outage] = field(default_factory=list)

    @property
    def kills(self) -> Counter[str]:
        return Counter(each.victim for each in self.outages)


async def measure_killed(stage: Stage, workload: Workload, *, batch: int) -> Run:
    """Send everything, and kill one after the other as the work goes on."""
    await warm_up(stage, workload)
    client = BenchClient(stage.client, workload.title, batch=batch, keyed=True)
    beginning = await begin(stage)
    killing = Killing()
    # Our own connection loses its server, too; that it says so, with a traceback, is no news.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.send(workload.refs, workload.executions))
        tasks.create_task(_keep_killing(stage, client, workload, killing))
    run = await conclude(stage, workload, client, beginning)
    async with stage.database.reading() as tx:
        left = await list_left_attempts(tx, client.trace_tag)
    verdict = replace(run.verdict, unexplained=len(find_unexplained(left, killing.outages)))
    return replace(run, verdict=verdict, kills=killing.kills, repeated=len(left))


async def _keep_killing(stage: Stage, client: BenchClient, workload: Workload, killing: Killing) -> None:
    """The next victim dies when the next share of the work is done, so that each death meets work under way."""
    for place, victim in enumerate(VICTIMS, start=1):
        mark = workload.executions * place // (len(VICTIMS) + 1)
        await _until(partial(_has_ended, client, mark))
        began = time.time()
        pid = (await stage.processes())[victim]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await _until(partial(_is_back, stage, victim, pid))
        killing.outages.append(Outage(victim=victim, began=began, ended=time.time()))


async def _has_ended(client: BenchClient, number: int) -> bool:
    return len(client.accepted) > number and await client.has_ended(client.accepted[number])


async def _is_back(stage: Stage, name: str, old: int) -> bool:
    return (await stage.processes()).get(name, old) != old


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await holds():  # noqa: ASYNC110 - another process's work, seen only by looking
            await asyncio.sleep(POLL_SECONDS)


def find_unexplained(left: Sequence[LeftAttempt], outages: Sequence[Outage]) -> list[LeftAttempt]:
    """Attempts that were given up though neither their worker nor the database had been killed meanwhile.

    A worker that gives back what it has no room for has not tried it.
    """
    return [each for each in left if each.reason != FULL and not any(_explains(outage, each) for outage in outages)]


def _explains(outage: Outage, attempt: LeftAttempt) -> bool:
    return (
        outage.victim in BLAMED
        and outage.began < attempt.left_at.timestamp()
        and attempt.placed_at.timestamp() < outage.ended
    )
