"""What the machine can do at this moment: without it, no figure of a run means anything."""

import os
import statistics
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from attune.storage.database import Database
from attune.storage.upkeep.yardstick import commit_durably

IDLE_SECONDS: Final = 0.5
SYNCS: Final = 200
BLOCK: Final = bytes(4096)
COMMIT_SECONDS: Final = 0.5
SPAWN_SECONDS: Final = 0.5
# Enough for every processor to have one more to go on with.
SPAWNS_AT_ONCE: Final = 8
ECHO: Final = ("/bin/sh", "-c", "echo hi")
COLD_PYTHON: Final = (sys.executable, "-I", "-c", "print('hi')")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The state of the machine just before a repetition."""

    idle_percent: float
    fdatasync_us: float
    commits_per_second: float
    spawns_per_second: float
    pythons_per_second: float


async def look_at_machine(directory: Path, database: Database) -> Machine:
    """About two seconds of small measurements, on the disk the platform lives on."""
    import asyncio

    idle = await asyncio.to_thread(psutil.cpu_times_percent, IDLE_SECONDS)
    return Machine(
        idle_percent=round(idle.idle, 1),
        fdatasync_us=await asyncio.to_thread(_fdatasync_us, directory),
        commits_per_second=await _commits_per_second(database),
        spawns_per_second=await asyncio.to_thread(_starts_per_second, ECHO),
        pythons_per_second=await asyncio.to_thread(_starts_per_second, COLD_PYTHON),
    )


def _fdatasync_us(directory: Path) -> float:
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            os.write(file.fileno(), BLOCK)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1e6, 1)


async def _commits_per_second(database: Database) -> float:
    """One client that commits again and again, waiting for the disk each time."""
    done = 0
    async with database.reading() as tx:
        began = time.perf_counter()
        while (seconds := time.perf_counter() - began) < COMMIT_SECONDS:
            await commit_durably(tx)
            done += 1
    return round(done / seconds, 1)


def _starts_per_second(words: tuple[str, ...]) -> float:
    """The ceiling of every action that is a process: starting a program with nothing around it."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    running: deque[int] = deque()
    done = 0
    began = time.perf_counter()
    while time.perf_counter() - began < SPAWN_SECONDS:
        running.append(os.posix_spawn(words[0], words, {}, file_actions=quiet))
        if len(running) == SPAWNS_AT_ONCE:
            os.waitpid(running.popleft(), 0)
            done += 1
    for pid in running:
        os.waitpid(pid, 0)
        done += 1
    return round(done / (time.perf_counter() - began), 1)
