"""What leaks is called a leak, and what only breathes is not."""

from __future__ import annotations

from random import Random

import pytest

from tests.soak.slope import HOUR, MEGABYTE, Point, judge_descriptors, judge_memory, slope

RATE = 50.0
MINUTES_10 = range(0, 600, 5)
BASE = 60 * MEGABYTE


def noisy(seed: int, seconds: int, *, bytes_per_execution: float) -> Point:
    """A process as the kernel shows it: pages, and a few hundred kilobytes that come and go."""
    breath = Random(seed * 10_000 + seconds).uniform(-0.3, 0.3) * MEGABYTE
    return float(seconds), BASE + breath + bytes_per_execution * RATE * seconds


def test_the_slope_of_a_line_is_its_slope() -> None:
    assert slope([(x, 3.0 * x + 7) for x in range(100)]) == pytest.approx(3.0)


def test_a_few_wild_points_do_not_move_the_slope() -> None:
    points: list[Point] = [(float(x), 2.0 * x) for x in range(100)]
    points[10], points[50], points[97] = (10.0, 1e9), (50.0, -1e9), (97.0, 1e9)

    assert slope(points) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_and_fifty_bytes_for_each_execution_are_seen_within_ten_minutes(seed: int) -> None:
    seen = judge_memory(
        "leaky", [noisy(seed, x, bytes_per_execution=250) for x in MINUTES_10], executions_per_second=RATE
    )

    assert seen.leaks
    assert seen.per_hour == pytest.approx(250 * RATE * HOUR, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_bytes_for_each_execution_are_seen_within_an_hour(seed: int) -> None:
    hour = [noisy(seed, x, bytes_per_execution=100) for x in range(0, 3600, 5)]

    assert judge_memory("leaky", hour, executions_per_second=RATE).leaks


@pytest.mark.parametrize("seed", range(5))
def test_a_process_that_only_breathes_does_not_leak(seed: int) -> None:
    points = [noisy(seed, x, bytes_per_execution=0) for x in MINUTES_10]

    assert not judge_memory("flat", points, executions_per_second=RATE).leaks


@pytest.mark.parametrize("period", [60, 170, 290])
def test_a_saw_does_not_leak(period: int) -> None:
    """What a late collection or a rotated buffer looks like."""
    points: list[Point] = [(float(x), BASE + (x % period) / period * 12 * MEGABYTE) for x in range(0, 1800, 5)]

    assert not judge_memory("saw", points, executions_per_second=RATE).leaks


def test_one_jump_does_not_leak() -> None:
    """What a cache that is filled once, or a larger batch than before, looks like."""
    points: list[Point] = [(float(x), BASE + (20 * MEGABYTE if x > 400 else 0)) for x in range(0, 600, 5)]

    assert not judge_memory("jump", points, executions_per_second=RATE).leaks


def test_growth_while_it_warms_up_does_not_count() -> None:
    points: list[Point] = [(float(x), BASE + min(x, 150) * MEGABYTE) for x in MINUTES_10]

    assert not judge_memory("warm", points, executions_per_second=RATE).leaks


def test_a_descriptor_every_half_minute_is_seen_and_a_pool_that_breathes_is_not() -> None:
    breathing = [(float(x), 40 + Random(x).choice([0, 0, 1, 5])) for x in MINUTES_10]

    assert judge_descriptors("leaky", [(float(x), 40 + x // 30) for x in MINUTES_10]).leaks
    assert not judge_descriptors("pool", breathing).leaks


def test_descriptors_of_what_runs_just_now_do_not_leak() -> None:
    """More and more runs at the same time, and now and then nothing."""
    points: list[Point] = [(float(x), 20.0 + (0 if x % 20 == 0 else x / 10)) for x in MINUTES_10]

    assert not judge_descriptors("busy", points).leaks


def test_a_few_points_prove_nothing() -> None:
    assert not judge_memory("short", [(0.0, 1.0), (1.0, 1e12), (2.0, 2e12)], executions_per_second=RATE).leaks
