"""Whether something grows for ever: a robust slope, and when it is called a leak.

What a healthy process holds is a staircase or a saw: the allocator keeps what it once needed, caches fill, collections
come late, and whatever runs just now has its pipes. What leaks raises the floor. So the least of each stretch of time
counts, Theil-Sen (the median of the slopes between all pairs) follows no single stretch, and what leaks does so in the
first half of the time as well as in the second, unlike what jumped once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

HOUR = 3600.0
MEGABYTE = 1024 * 1024
# While caches, pools and prepared statements are filled, growth says nothing.
WARM_UP_SHARE = 0.3
# Into so many stretches the time after it is cut.
STRETCHES = 16
# Below so many points a slope is chance.
POINTS_MIN = 2 * STRETCHES
# What is kept of an execution for ever is at least an entry of a dictionary with its key and value: about 100 bytes.
# Half of that is a leak; at 50 per second it is 9 MB an hour.
BYTES_PER_EXECUTION_MAX = 50.0
# Allocators take memory in arenas of a megabyte and do not give back the last ones; so much is no proof of anything.
NOISE_BYTES = 4 * MEGABYTE
# The same where a name stands for many processes that come and go, each with caches of its own.
NOISE_BYTES_OF_MANY = MEGABYTE
# Connections of pools come and go by a few.
NOISE_DESCRIPTORS = 6.0
# Each half of the time has at least this share of the whole slope, or it was a jump.
STEADY_SHARE = 0.25

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How something grew while it was looked at."""

    name: str
    first: float
    last: float
    # By the slope, from the end of the warm-up to the last look.
    grown: float
    per_hour: float
    leaks: bool


def slope(points: Sequence[Point]) -> float:
    """The median of the slopes between all pairs of points; 0 for fewer than two."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2) if x2 != x1]
    return median(slopes) if slopes else 0.0


def judge_memory(name: str, points: Sequence[Point], *, executions_per_second: float, processes: int = 1) -> Growth:
    """A leak is more than chance, and more than an execution may leave behind; for so many processes of one name."""
    grown = _measure(name, points)
    per_execution = grown.per_hour / HOUR / executions_per_second
    noise = max(NOISE_BYTES, processes * NOISE_BYTES_OF_MANY)
    return _call(grown, points, leaks=grown.grown > noise and per_execution > BYTES_PER_EXECUTION_MAX)


def judge_descriptors(name: str, points: Sequence[Point]) -> Growth:
    """Descriptors have no allocator: whatever rises steadily leaks."""
    grown = _measure(name, points)
    return _call(grown, points, leaks=grown.grown > NOISE_DESCRIPTORS)


def after_warm_up(points: Sequence[Point]) -> list[Point]:
    """The points that count."""
    if not points:
        return []
    begin, end = points[0][0], points[-1][0]
    return [point for point in points if point[0] >= begin + (end - begin) * WARM_UP_SHARE]


def floors(points: Sequence[Point]) -> list[Point]:
    """The lowest point of each stretch."""
    size = max(1, -(-len(points) // STRETCHES))
    return [min(points[start : start + size], key=lambda point: point[1]) for start in range(0, len(points), size)]


def _measure(name: str, points: Sequence[Point]) -> Growth:
    counted = floors(after_warm_up(points))
    per_second = slope(counted)
    seconds = counted[-1][0] - counted[0][0] if counted else 0.0
    return Growth(
        name=name,
        first=counted[0][1] if counted else 0.0,
        last=counted[-1][1] if counted else 0.0,
        grown=per_second * seconds,
        per_hour=per_second * HOUR,
        leaks=False,
    )


def _call(grown: Growth, points: Sequence[Point], *, leaks: bool) -> Growth:
    counted = floors(after_warm_up(points))
    half = len(counted) // 2
    steady = min(slope(counted[:half]), slope(counted[half:])) * HOUR > grown.per_hour * STEADY_SHARE
    return replace(grown, leaks=leaks and steady and len(after_warm_up(points)) >= POINTS_MIN)
