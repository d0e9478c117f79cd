"""What processes hold, by name, read from the kernel every few seconds; and what the hot tables hold.

Memory is what a process allocated itself (`RssAnon`): pages of files and of shared buffers come and go as the kernel
likes. A process that is replaced, such as a warm Python that has served long enough, goes on under its name.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import psutil

from tests.soak.slope import Point

KILOBYTE = 1024
HOT_TABLES = ("outbox", "assignment", "unplaced", "line_entry", "line", "worker")
POSTGRES = "postgres"
# Of what a named process started, these are looked at too if they live long; all others are actions.
HELPERS = ("fork_server", "launcher")
HELPER_SECONDS_MIN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one process holds."""

    memory_bytes: int
    descriptors: int
    threads: int


@dataclass(slots=True)
class Series:
    """What was seen of everybody so far: seconds since the beginning, and what it was then."""

    memory: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))
    descriptors: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))
    threads: dict[str, list[Point]] = field(default_factory=lambda: defaultdict(list))

    def look(self, processes: Iterable[tuple[str, int]], seconds: float) -> None:
        """Look at every process, and add up those of one name."""
        seen: dict[str, list[Holding]] = defaultdict(list)
        for name, pid in _with_helpers(processes):
            if holding := hold(pid):
                seen[name].append(holding)
        for name, holdings in seen.items():
            self.memory[name].append((seconds, sum(each.memory_bytes for each in holdings)))
            self.descriptors[name].append((seconds, sum(each.descriptors for each in holdings)))
            self.threads[name].append((seconds, sum(each.threads for each in holdings)))


def hold(pid: int) -> Holding | None:
    """What this process holds; None if it has ended."""
    place = Path(f"/proc/{pid}")
    try:
        said = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
        descriptors = sum(1 for _ in (place / "fd").iterdir())
    except OSError:
        return None
    if "RssAnon" not in said:
        return None  # It has ended, and only its parent has not noticed.
    memory = int(said["RssAnon"].split()[0]) * KILOBYTE
    return Holding(memory_bytes=memory, descriptors=descriptors, threads=int(said["Threads"]))


def _with_helpers(processes: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """The named ones; all of PostgreSQL's as one; and what long-lived helpers they have."""
    for name, pid in processes:
        yield name, pid
        with suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                with suppress(psutil.Error):
                    if helper := _helper_of(name, child):
                        yield helper, child.pid


def _helper_of(name: str, child: psutil.Process) -> str:
    if name == POSTGRES:
        return POSTGRES
    if time.time() - child.create_time() < HELPER_SECONDS_MIN:
        return ""
    said = " ".join(child.cmdline())
    return next((f"{name} {helper}" for helper in HELPERS if helper in said), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The hot tables at one moment."""

    outbox: int
    oldest_seconds: float
    bytes: dict[str, int]
    dead: dict[str, int]


async def look_at_tables(database: asyncpg.Pool) -> Tables:
    """How deep the outbox is, and how large the hot tables are."""
    outbox = await database.fetchrow(
        "SELECT count(*) AS depth, coalesce(extract(epoch FROM now() - min(not_before)), 0)::float8 AS oldest"
        " FROM attune.outbox WHERE not_before <= now()"
    )
    rows = await database.fetch(
        "SELECT relname, n_dead_tup, pg_total_relation_size(relid) AS size FROM pg_stat_user_tables"
        " WHERE schemaname = 'attune' AND relname = ANY($1)",
        list(HOT_TABLES),
    )
    assert outbox is not None
    return Tables(
        outbox=outbox["depth"],
        oldest_seconds=outbox["oldest"],
        bytes={row["relname"]: row["size"] for row in rows},
        dead={row["relname"]: row["n_dead_tup"] for row in rows},
    )
