"""Limits that move by themselves: where they settle, what they flee from, and that each change has a reason."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from attune.domain.adaptive import Decision, Window, decide_limit, ended_needed, starting_limit
from attune.domain.definitions import Adaptive, AdaptiveTarget

FREE = Adaptive(min=1, max=20)
Latency = Callable[[int], float]


def doubles_above_eight(limit: int) -> float:
    return 0.1 if limit <= 8 else 0.2


def decide(adaptive: Adaptive, limit: int, best: float | None = 0.1, **changes: object) -> Decision:
    happened = {"ended": 20, "failed": 0, "seconds": 0.1, "full": True} | changes
    decision = decide_limit(adaptive, limit=limit, best_seconds=best, window=Window(**happened))  # type: ignore[arg-type]  # callers change what they name
    assert decision is not None
    assert bool(decision.reason) == (decision.limit != limit)
    return decision


def live(adaptive: Adaptive, latency: Latency, *, windows: int, limit: int = 20) -> list[int]:
    """The limits of an action that is always wanted, window after window."""
    limits = [starting_limit(adaptive, limit)]
    best = None
    for _ in range(windows):
        decision = decide(adaptive, limits[-1], best, seconds=latency(limits[-1]))
        best = decision.best_seconds
        limits.append(decision.limit)
    return limits


@pytest.mark.parametrize("target", [None, AdaptiveTarget(latency_seconds=0.15)])
@pytest.mark.parametrize("limit", [1, 8, 20])
def test_an_action_whose_latency_doubles_above_eight_settles_around_it(
    target: AdaptiveTarget | None, limit: int
) -> None:
    adaptive = Adaptive(min=1, max=20, target=target)
    limits = live(adaptive, doubles_above_eight, windows=100, limit=limit)
    assert {6 <= each <= 10 for each in limits[20:]} == {True}
    assert len(set(limits[20:])) > 1


@pytest.mark.parametrize("seed", range(20))
def test_it_settles_there_too_where_latency_is_a_matter_of_chance(seed: int) -> None:
    random = Random(seed)
    limits = live(FREE, lambda limit: doubles_above_eight(limit) * random.uniform(0.85, 1.15), windows=200)
    assert min(limits[20:]) >= 6
    assert max(limits[20:]) <= 10


def test_a_burst_of_failures_halves_the_limit_and_says_why() -> None:
    decision = decide(FREE, 8, failed=5, seconds=None)
    assert decision.limit == 4
    assert decision.reason == "5 of 20 failed, more than 10%: 8 → 4"


def test_failures_lead_to_the_lowest_limit_and_not_below() -> None:
    assert decide(FREE, 1, failed=20, seconds=None).limit == 1
    assert decide(Adaptive(min=3, max=9), 4, failed=20, seconds=None).limit == 3


def test_a_single_failure_is_no_burst() -> None:
    assert decide(FREE, 3, ended=5, failed=1).limit == 4


def test_a_target_says_how_many_failures_are_too_many() -> None:
    tolerant = Adaptive(min=1, max=20, target=AdaptiveTarget(failure_rate=0.5))
    assert decide(tolerant, 8, failed=9).limit == 9
    assert decide(tolerant, 8, failed=11).limit == 4
    assert decide(tolerant, 8, seconds=99.0).limit == 9


def test_a_slow_window_names_latency_and_what_it_was_held_against() -> None:
    assert decide(FREE, 10, seconds=0.3).reason == ("latency 0.3 s above 0.153 s (1.5 times the best seen): 10 → 8")
    aimed = Adaptive(min=1, max=20, target=AdaptiveTarget(latency_seconds=0.2))
    assert decide(aimed, 10, seconds=0.3).reason == "latency 0.3 s above 0.2 s (the target): 10 → 8"


def test_a_limit_that_was_never_reached_does_not_grow() -> None:
    assert decide(FREE, 8, full=False) == Decision(limit=8, best_seconds=0.1)
    assert decide(FREE, 8).limit == 9
    assert decide(FREE, 20).limit == 20


def test_nothing_is_decided_before_a_generation_has_ended() -> None:
    few = Window(ended=ended_needed(8) - 1, failed=7, seconds=None, full=True)
    assert decide_limit(FREE, limit=8, best_seconds=None, window=few) is None


def test_an_action_that_grew_slower_for_good_is_not_held_down_for_ever() -> None:
    best: float | None = 0.1
    limit = 1
    for _ in range(100):
        decision = decide(FREE, limit, best, seconds=0.3)
        limit, best = decision.limit, decision.best_seconds
    assert limit == 20
