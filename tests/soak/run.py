"""Lets a platform work at an even pace for a long time, and says what grew.

make soak MINUTES=60 TRANSPORT=rabbitmq RATE=50
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import asyncpg

from tests.soak.load import Load, write_pack
from tests.soak.samples import POSTGRES, Series, Tables, look_at_tables
from tests.soak.slope import MEGABYTE, Growth, judge_descriptors, judge_memory
from tests.witness.platform import Platform, running_platform
from tests.witness.servers import start_rabbitmq
from tests.witness.waiting import cancel_when_told_to_end, until

LOOK_SECONDS = 5.0
SAY_SECONDS = 30.0
FINISH_SECONDS = 300.0
# The heartbeat of a real installation: this is about how it is run, not about how fast it notices.
SETTINGS = {"ATTUNE__WORKER__HEARTBEAT_INTERVAL": "10"}
# Autovacuum keeps up with what the hot tables leave behind; more than this is bloat that has no end.
HOT_BYTES_MAX = 256 * MEGABYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """From acceptance to the end, in milliseconds, of what was accepted in one quarter of the time."""

    count: int
    p50: float
    p99: float


@dataclass(slots=True, kw_only=True)
class Soak:
    """What was seen."""

    seconds: float
    rate: float
    series: Series = field(default_factory=Series)
    tables: list[Tables] = field(default_factory=list)
    accepted: int = 0
    refused: list[str] = field(default_factory=list)
    late: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    quarters: list[Latency] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    check: str = ""

    def growths(self) -> tuple[list[Growth], list[Growth]]:
        """Of the memory and of the descriptors of everybody."""
        pace = max(self.accepted / self.seconds, 1.0)
        memory = [
            judge_memory(name, seen, executions_per_second=pace, processes=self._processes(name))
            for name, seen in self.series.memory.items()
        ]
        return memory, [judge_descriptors(name, seen) for name, seen in self.series.descriptors.items()]

    def _processes(self, name: str) -> int:
        """Each process of PostgreSQL has one thread; of ours there is one of a name."""
        return int(self.series.threads[name][-1][1]) if name == POSTGRES else 1

    def faults(self) -> list[str]:
        """Everything that should not be."""
        memory, descriptors = self.growths()
        found = [f"{each.name}: {each.per_hour / MEGABYTE:+.1f} MB an hour" for each in memory if each.leaks]
        # PostgreSQL keeps files open as its own settings allow; it has no descriptors of ours.
        leaks = [each for each in descriptors if each.leaks and each.name != POSTGRES]
        found += [f"{each.name}: {each.per_hour:+.0f} descriptors an hour" for each in leaks]
        found += self.refused[:3]
        if self.statuses != {"succeeded": self.accepted}:
            found.append(f"{self.accepted} were accepted: {self.statuses}")
        found += [f"{count} rows are left in {table}" for table, count in self.left.items() if count]
        if self.tables and sum(self.tables[-1].bytes.values()) > HOT_BYTES_MAX:
            found.append(f"the hot tables hold {self.tables[-1].bytes}")
        return found + ([f"attune check: {self.check}"] if self.check else [])


async def soak(platform: Platform, *, seconds: float, rate: float, look_seconds: float = LOOK_SECONDS) -> Soak:
    """Work for so long, then wait until all of it has ended, and ask what is left."""
    write_pack(platform.home / "soak-pack")
    await platform.run("pack", "install", str(platform.home / "soak-pack"))
    seen = Soak(seconds=seconds, rate=rate)
    url = (await platform.run("db", "url")).out.strip()
    async with platform.client() as client, asyncpg.create_pool(url, min_size=1, max_size=2) as database:
        load = Load(clients=[client], rate=rate)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.flow(stop))
            await _watch(platform, database, seen, load, look_seconds=look_seconds)
            stop.set()
        seen.accepted, seen.refused, seen.late = len(load.accepted), load.refused, load.late
        await until(lambda: _all_ended(database), seconds=FINISH_SECONDS)
        await _collect(database, seen)
    check = await platform.run("check", "-o", "json", check=False)
    seen.check = "" if check.code == 0 else check.out
    return seen


async def _watch(platform: Platform, database: asyncpg.Pool, seen: Soak, load: Load, *, look_seconds: float) -> None:
    begin = said = time.monotonic()
    processes = await platform.processes()
    while (passed := time.monotonic() - begin) < seen.seconds:
        seen.series.look(processes.items(), passed)
        seen.tables.append(await look_at_tables(database))
        if time.monotonic() - said > SAY_SECONDS:
            said = time.monotonic()
            # A process that was started again has another number.
            processes = await platform.processes()
            _say(_progress(seen, load, passed))
        await asyncio.sleep(min(look_seconds, max(seen.seconds - passed, 0.0)))


def _progress(seen: Soak, load: Load, passed: float) -> str:
    tables = seen.tables[-1]
    memory = "  ".join(f"{name} {points[-1][1] / MEGABYTE:.1f}" for name, points in seen.series.memory.items())
    return (
        f"{passed / 60:5.1f} min  {len(load.accepted):,} accepted"
        f"  outbox {tables.outbox} ({tables.oldest_seconds:.1f} s)"
        f"  dead rows {sum(tables.dead.values()):,}  hot tables {sum(tables.bytes.values()) / MEGABYTE:.1f} MB"
        f"  MB: {memory}"
    )


async def _all_ended(database: asyncpg.Pool) -> bool:
    return not await database.fetchval(
        "SELECT (SELECT count(*) FROM attune.execution WHERE ended_at IS NULL) + (SELECT count(*) FROM attune.outbox)"
    )


async def _collect(database: asyncpg.Pool, seen: Soak) -> None:
    rows = await database.fetch("SELECT status, count(*) FROM attune.execution WHERE trace_tag = 'soak' GROUP BY 1")
    seen.statuses = {row["status"]: row["count"] for row in rows}
    quarters = await database.fetch(
        """
        SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY took) AS p50,
               percentile_cont(0.99) WITHIN GROUP (ORDER BY took) AS p99
          FROM (SELECT ntile(4) OVER (ORDER BY created) AS quarter,
                       extract(epoch FROM ended_at - created)::float8 * 1000 AS took
                  FROM attune.execution WHERE trace_tag = 'soak') each
         GROUP BY quarter ORDER BY quarter
        """
    )
    seen.quarters = [Latency(count=row["count"], p50=row["p50"], p99=row["p99"]) for row in quarters]
    for table in ("outbox", "assignment", "unplaced", "line_entry", "dead_letter"):
        seen.left[table] = await database.fetchval(f"SELECT count(*) FROM attune.{table}")  # noqa: S608 — our own names


def describe(seen: Soak, *, transport: str) -> dict[str, object]:
    """Everything as one document."""
    memory, descriptors = seen.growths()
    threads = {name: [points[0][1], points[-1][1]] for name, points in seen.series.threads.items()}
    last = seen.tables[-1]
    return {
        "transport": transport,
        "minutes": round(seen.seconds / 60, 2),
        "rate": seen.rate,
        "executions": seen.accepted,
        "late_requests": seen.late,
        "memory_mb_per_hour": {each.name: round(each.per_hour / MEGABYTE, 2) for each in memory},
        "memory_mb": {each.name: [round(x / MEGABYTE, 1) for x in (each.first, each.last)] for each in memory},
        "descriptors_per_hour": {each.name: round(each.per_hour, 1) for each in descriptors},
        "descriptors": {each.name: [each.first, each.last] for each in descriptors},
        "threads": threads,
        "latency_ms": [{"p50": round(each.p50, 1), "p99": round(each.p99, 1)} for each in seen.quarters],
        "outbox_max": max(each.outbox for each in seen.tables),
        "hot_tables_mb": {name: round(size / MEGABYTE, 2) for name, size in last.bytes.items()},
        "dead_rows": last.dead,
        "faults": seen.faults(),
        "ok": not seen.faults(),
    }


async def main(arguments: argparse.Namespace) -> int:
    """One platform of one process each, for as long as asked."""
    cancel_when_told_to_end()
    minutes, rate = float(arguments.minutes or 60), float(arguments.rate or 50)
    transport = arguments.transport or "postgres"
    async with AsyncExitStack() as stack:
        settings: Mapping[str, str] = SETTINGS
        if transport == "rabbitmq":
            broker = await stack.enter_async_context(start_rabbitmq())
            settings = {**SETTINGS, "ATTUNE__MESSAGE_QUEUE__URL": broker.url()}
        _say(f"{rate:g} requests per second for {minutes:g} minutes, messages through {transport}")
        platform = await stack.enter_async_context(running_platform(settings=settings))
        seen = await soak(platform, seconds=minutes * 60, rate=rate)
    report = describe(seen, transport=transport)
    _say(json.dumps(report))
    return 0 if report["ok"] else 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", default="", help="60 unless said")
    parser.add_argument("--rate", default="", help="requests per second, 50 unless said")
    parser.add_argument("--transport", default="", choices=["", "postgres", "rabbitmq"])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse())))
