"""The judge of lines itself: each fault it exists for, shown to it once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.witness.line_log import (
    LineStory,
    LogRow,
    find_excess,
    find_idle_slots,
    find_inversions,
    find_lost,
)

ZERO = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


def story(*steps: tuple[str, int, float], priorities: dict[int, int] | None = None) -> LineStory:
    """A line with the limit 1 in which 1, 2, 3 were accepted: what was done to whom, and when."""
    rows = [
        LogRow(
            line_id=1,
            n=n,
            op=op,
            execution_id=who,
            priority=(priorities or {}).get(who, 0),
            limit_in_force=1,
            at=at(when),
        )
        for n, (op, who, when) in enumerate(steps, 1)
    ]
    ended = {who: at(when) for op, who, when in steps if op in {"release", "remove"}}
    return LineStory(rows=rows, accepted=[1, 2, 3], limits={1}, ended=ended)


JOINED = (("enq", 1, 0.0), ("enq", 2, 0.0), ("enq", 3, 0.0))
SERVED = (
    *JOINED,
    *(("admit", 1, 0.1), ("release", 1, 0.5)),
    *(("admit", 2, 0.6), ("release", 2, 0.7)),
    *(("admit", 3, 0.8), ("release", 3, 0.9)),
)


def test_a_line_that_kept_its_promises_is_found_without_fault() -> None:
    good = story(*SERVED)
    assert (find_inversions(good), find_excess(good), find_lost(good)) == ([], [], [])
    assert find_idle_slots(good) == pytest.approx([0.1, 0.1, 0.1])


def test_who_is_let_past_an_earlier_one_is_found_by_the_clients_order() -> None:
    swapped = replace(story(*SERVED), accepted=[2, 1, 3])
    assert find_inversions(swapped) == ["line 1: 1 was admitted before [2]"]


def test_a_higher_priority_may_pass_and_a_lower_one_may_not() -> None:
    assert find_inversions(story(*JOINED, ("admit", 3, 1), priorities={3: 5})) == []
    assert len(find_inversions(story(*JOINED, ("admit", 1, 1), priorities={3: 5}))) == 1


def test_who_left_by_being_cancelled_is_not_passed_over() -> None:
    assert find_inversions(story(*JOINED, ("remove", 1, 1), ("admit", 2, 1))) == []


def test_one_slot_for_two_and_a_limit_nobody_set_are_found() -> None:
    two = story(*JOINED, ("admit", 1, 1), ("admit", 2, 1))
    assert find_excess(two) == ["line 1, n 5: 2 held a slot of 1"]
    assert len(find_excess(replace(story(*SERVED), limits={2}))) == 3


def test_who_never_joined_or_never_left_is_lost() -> None:
    assert find_lost(story(*SERVED[:-1])) == ["3 joined 1 times and left 0 times"]
    assert find_lost(story(*SERVED[1:])) == ["1 joined 0 times and left 1 times"]


def test_a_slot_is_idle_from_the_end_of_its_holder_and_not_from_its_release() -> None:
    late = story(*JOINED, ("admit", 1, 0), ("release", 1, 5), ("admit", 2, 5), ("release", 2, 5), ("remove", 3, 5))
    seen = replace(late, ended={**late.ended, 1: at(2)})
    assert max(find_idle_slots(seen)) == pytest.approx(3)


def test_a_pause_excuses_an_empty_slot() -> None:
    paused = replace(story(*SERVED), pauses=[(at(0.01), at(0.09))])
    assert find_idle_slots(paused)[:2] == pytest.approx([0.01, 0.01])
