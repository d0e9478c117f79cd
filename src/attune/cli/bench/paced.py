"""Requests that fall due at a fixed rate, whether or not the ones before were answered: an open loop.

What an execution waits is counted from when its request was due. A client or an API that falls behind makes every later
figure worse, as it would for people; a client that waited for answers first would leave those out.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from attune.cli.bench.client import BenchClient
from attune.cli.bench.judge import count_overtaken, number_of
from attune.cli.bench.measure import Run, Spread, begin, conclude, spread, warm_up
from attune.cli.bench.throwaway import Stage
from attune.cli.bench.workloads import Workload

# With more requests unanswered, those that fall due share one; the time they lose by that counts.
UNANSWERED_MAX: Final = 50
# Time for everything to get ready between "now" and the first request.
LEAD_SECONDS: Final = 0.2
# Behind by less than this share of the rate, it was reached.
SHORTFALL_MAX: Final = 0.05
# A wall clock is exact to a quarter of a microsecond in floating point; that must not make a request a step late.
ROUNDING_SECONDS: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When each request is due, in seconds of the wall clock."""

    began: float
    rate: float

    def due(self, number: int) -> float:
        return self.began + number / self.rate

    def count_due(self, moment: float) -> int:
        """How many are due by then."""
        return int((moment - self.began + ROUNDING_SECONDS) * self.rate) + 1 if moment >= self.began else 0


@dataclass(slots=True, kw_only=True)
class Sending:
    """What was sent when, by number and by id."""

    schedule: Schedule
    late_ms: list[float] = field(default_factory=list)
    sent: dict[int, float] = field(default_factory=dict)
    answered: dict[int, float] = field(default_factory=dict)


async def measure_paced(stage: Stage, workload: Workload, *, batch: int) -> Run:
    """Send at the workload's rate, and count from when each request was due."""
    await warm_up(stage, workload)
    client = BenchClient(stage.wire, workload.title, batch=batch)
    beginning = await begin(stage)
    schedule = Schedule(began=time.time() + LEAD_SECONDS, rate=float(workload.rate or 1))
    sending = Sending(schedule=schedule)
    await send_paced(client, workload.refs, workload.executions, sending)
    run = await conclude(stage, workload, client, replace(beginning, at=schedule.began))
    return _counted_from_due(run, sending)


async def send_paced(client: BenchClient, refs: Sequence[str], count: int, sending: Sending) -> None:
    """Each request at its time; what is due at the same moment goes together."""
    free = asyncio.Semaphore(UNANSWERED_MAX)

    async def send(numbers: range) -> None:
        try:
            began = time.time()
            ids = await client.request(refs, numbers)
            answered = time.time()
        finally:
            free.release()
        sending.late_ms += [(began - sending.schedule.due(number)) * 1000 for number in numbers]
        sending.sent |= dict.fromkeys(ids, began)
        sending.answered |= dict.fromkeys(ids, answered)
        client.accepted += ids

    number = 0
    async with asyncio.TaskGroup() as tasks:
        while number < count:
            await asyncio.sleep(max(0.0, sending.schedule.due(number) - time.time()))
            await free.acquire()
            end = min(max(sending.schedule.count_due(time.time()), number + 1), number + client.batch, count)
            tasks.create_task(send(range(number, end)))
            number = end


def _counted_from_due(run: Run, sending: Sending) -> Run:
    evidence = run.evidence
    if evidence is None:
        return run
    dues = [(sending.schedule.due(number_of(each)), each) for each in evidence.executions]
    overtaken = sum(
        count_overtaken(
            [row.execution_id for row in log if row.op == "admit" and row.execution_id is not None],
            sending.sent,
            sending.answered,
        )
        for log in evidence.admissions.values()
    )
    last = max(sending.sent.values(), default=sending.schedule.began)
    return replace(
        run,
        start_ms=_spread_ms([(due, each.started_at.timestamp()) for due, each in dues if each.started_at]),
        done_ms=_spread_ms([(due, each.ended_at.timestamp()) for due, each in dues if each.ended_at]),
        verdict=replace(run.verdict, inversions=overtaken),
        late_ms=spread(sending.late_ms),
        sent_per_second=round(sent_rate(len(sending.sent), sending.schedule, last), 1),
    )


def sent_rate(count: int, schedule: Schedule, last: float) -> float:
    """Requests per second; the last one is due a step before its second is over."""
    return count / max(last - schedule.began + 1 / schedule.rate, ROUNDING_SECONDS)


def is_reached(rate: float, *, sent: float, done: float) -> bool:
    """Whether requests were sent and carried out at the rate that was asked for."""
    return min(sent, done) >= rate * (1 - SHORTFALL_MAX)


def _spread_ms(moments: Sequence[tuple[float, float]]) -> Spread:
    return spread([(end - begin) * 1000 for begin, end in moments])
