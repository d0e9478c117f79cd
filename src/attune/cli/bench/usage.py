"""What the processes of a platform used: processor time and memory."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process and everything below it used."""

    cpu_seconds: float
    memory_mb: float


def usage(pids: Mapping[str, int]) -> dict[str, Usage]:
    """By name of the process, without those that died; PostgreSQL's backends are children of its postmaster."""
    found: dict[str, Usage] = {}
    for name, pid in pids.items():
        with suppress(psutil.NoSuchProcess):
            found[name] = _sum(psutil.Process(pid))
    return found


def cpu_us_per(count: int, before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, int]:
    """Microseconds of processor time that each process spent on one of `count` things."""
    return {
        name: round((after[name].cpu_seconds - before[name].cpu_seconds) / max(count, 1) * 1e6)
        for name in after
        if name in before
    }


def cpu_share(seconds: float, before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, float]:
    """Which part of one processor each process used."""
    return {name: (after[name].cpu_seconds - before[name].cpu_seconds) / seconds for name in after if name in before}


def _sum(process: psutil.Process) -> Usage:
    family = list(_alive([process, *process.children(recursive=True)]))
    return Usage(cpu_seconds=sum(cpu for cpu, _ in family), memory_mb=sum(memory for _, memory in family) / 2**20)


def _alive(processes: list[psutil.Process]) -> Iterator[tuple[float, int]]:
    for process in processes:
        try:
            times = process.cpu_times()
            # Proportional, so that PostgreSQL's shared buffers are not counted once per backend.
            memory = process.memory_full_info().pss
        except psutil.Error:  # It ended; its parent has its time by now.
            continue
        yield times.user + times.system + times.children_user + times.children_system, memory
