"""How many native no-op executions pass through the batch API, and what each costs every process.

    python -m bench.throughput [--executions 5000] [--transport postgres|rabbitmq] [--idle-seconds 20]

Each repetition runs the set-based step beside the one-by-one step (`executor.batch_max` 500 and 1) in one go, because
only figures of the same run on the same machine may be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
import psutil

from tests.witness.platform import Platform, running_platform
from tests.witness.servers import start_rabbitmq

BATCH = 500
RESULTS = Path(__file__).parent / "results"
DONE_POLL_SECONDS = 0.05
DONE_SECONDS_MAX = 600.0
# Idle means the settings people run with, not those of tests.
AS_SHIPPED = {
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "10",
    "ATTUNE__EXECUTOR__TIMEOUT_CHECK_INTERVAL": "60",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "300",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process used."""

    cpu_seconds: float
    memory_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run."""

    transport: str
    batch_max: int
    executions: int
    seconds: float
    per_second: float
    cpu_us_per_execution: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A platform with nothing to do."""

    transport: str
    seconds: float
    cpu_percent: dict[str, float]
    memory_mb: dict[str, float]


def usage(pids: dict[str, int]) -> dict[str, Usage]:
    """CPU and memory of each process with its children; PostgreSQL's backends are children of its postmaster."""
    return {name: _sum(psutil.Process(pid)) for name, pid in pids.items()}


def _sum(process: psutil.Process) -> Usage:
    family = list(_alive([process, *process.children(recursive=True)]))
    return Usage(
        cpu_seconds=sum(cpu for cpu, _ in family),
        memory_mb=sum(memory for _, memory in family) / 2**20,
    )


def _alive(processes: list[psutil.Process]) -> Iterator[tuple[float, int]]:
    for process in processes:
        try:
            times = process.cpu_times()
            # Proportional, so that PostgreSQL's shared buffers are not counted once per backend.
            memory = process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
        yield times.user + times.system + times.children_user + times.children_system, memory


async def measure(platform: Platform, *, transport: str, batch_max: int, executions: int) -> Run:
    """Send everything, wait until the last has ended, and divide."""
    pids = await platform.processes()
    async with platform.client() as client:
        await _send(client, BATCH, tag="warm-up")
        await _finished(client, BATCH, tag="warm-up")
        before = usage(pids)
        begin = time.perf_counter()
        await _send(client, executions, tag="measured")
        await _finished(client, executions, tag="measured")
        seconds = time.perf_counter() - begin
    after = usage(pids)
    return Run(
        transport=transport,
        batch_max=batch_max,
        executions=executions,
        seconds=round(seconds, 3),
        per_second=round(executions / seconds, 1),
        cpu_us_per_execution={
            name: round((after[name].cpu_seconds - before[name].cpu_seconds) / executions * 1e6) for name in pids
        },
    )


async def _send(client: httpx2.AsyncClient, count: int, *, tag: str) -> None:
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        body = {"executions": [{"action_ref": "core.noop", "parameters": {}, "trace_tag": tag}] * size}
        (await client.post("/api/v1/executions:batch", json=body)).raise_for_status()


async def _finished(client: httpx2.AsyncClient, count: int, *, tag: str) -> None:
    """The ones accepted last are looked at first: while any of them lives, there is no point in counting."""
    async with asyncio.timeout(DONE_SECONDS_MAX):
        while True:
            page = (
                await client.get("/api/v1/executions", params={"trace_tag": tag, "limit": 20, "sort": "-id"})
            ).json()
            if all(row["ended_at"] for row in page["items"]) and await _count(client, tag) == count:
                return
            await asyncio.sleep(DONE_POLL_SECONDS)


async def _count(client: httpx2.AsyncClient, tag: str) -> int:
    cursor: str | None = None
    ended = 0
    while True:
        parameters = {"trace_tag": tag, "status": "succeeded", "limit": "1000"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/api/v1/executions", params=parameters)).json()
        ended += len(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            return ended


async def measure_idle(platform: Platform, *, transport: str, seconds: float) -> Idle:
    """CPU and memory while nothing happens."""
    pids = await platform.processes()
    before = usage(pids)
    await asyncio.sleep(seconds)
    after = usage(pids)
    return Idle(
        transport=transport,
        seconds=seconds,
        cpu_percent={
            name: round((after[name].cpu_seconds - before[name].cpu_seconds) / seconds * 100, 2) for name in pids
        },
        memory_mb={name: round(after[name].memory_mb, 1) for name in pids},
    )


async def main(arguments: argparse.Namespace) -> int:
    """Measure, print, keep."""
    runs: list[Run] = []
    idles: list[Idle] = []
    async with AsyncExitStack() as stack:
        settings: dict[str, str] = dict(AS_SHIPPED)
        if arguments.transport == "rabbitmq":
            broker = await stack.enter_async_context(start_rabbitmq())
            settings["ATTUNE__MESSAGE_QUEUE__URL"] = broker.url()
        for repetition in range(arguments.repetitions):
            for batch_max in (500, 1):
                async with running_platform(
                    settings={**settings, "ATTUNE__EXECUTOR__BATCH_MAX": str(batch_max)}
                ) as platform:
                    if not repetition and batch_max != 1 and arguments.idle_seconds:
                        idles.append(
                            await measure_idle(platform, transport=arguments.transport, seconds=arguments.idle_seconds)
                        )
                    # One by one is an order of magnitude slower; a tenth of the work says as much.
                    count = arguments.executions if batch_max != 1 else max(BATCH, arguments.executions // 10)
                    runs.append(
                        await measure(platform, transport=arguments.transport, batch_max=batch_max, executions=count)
                    )
                    print(json.dumps(asdict(runs[-1])), file=sys.stderr, flush=True)
    report = {"runs": [asdict(run) for run in runs], "idle": [asdict(idle) for idle in idles], "ratio": ratio(runs)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"throughput-{arguments.transport}.json").write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    return 0


def ratio(runs: list[Run]) -> float:
    """Set-based over one by one, by the medians of this run."""
    by_batch = {
        size: statistics.median(run.per_second for run in runs if (run.batch_max == 1) is (size == 1))
        for size in (1, 500)
    }
    return round(by_batch[500] / by_batch[1], 2)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=5000)
    parser.add_argument("--transport", choices=["postgres", "rabbitmq"], default="postgres")
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--idle-seconds", type=float, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse())))
