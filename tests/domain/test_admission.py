"""The specification of admission: order, limit, and what holds a line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from attune.domain.admission import Circumstances, Line, Op, Rate, admit, follow_policy, join, pause, release, resume

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OUTSIDE = Circumstances(now=NOW, is_queued=lambda _: True)


def stand_in_line(line: Line, *priorities: int) -> Line:
    """Executions 1, 2, 3 and so on."""
    for execution_id, priority in enumerate(priorities, start=1):
        line = join(line, execution_id, priority).line
    return line


def admitted(line: Line, outside: Circumstances = OUTSIDE) -> list[int]:
    return [row.entry.execution_id for row in admit(line, outside).log if row.op is Op.ADMITTED and row.entry]


def test_as_many_as_the_limit_are_admitted_in_the_order_they_came() -> None:
    assert admitted(stand_in_line(Line(limit=2), 0, 0, 0)) == [1, 2]


def test_a_higher_priority_goes_first() -> None:
    assert admitted(stand_in_line(Line(limit=2), 0, 5, 5)) == [2, 3]


def test_a_slot_is_given_back_once() -> None:
    line = admit(stand_in_line(Line(limit=1), 0, 0), OUTSIDE).line
    first = release(line, {1})
    assert [row.op for row in first.log] == [Op.RELEASED]
    assert release(first.line, {1}).log == ()


def test_who_ended_in_line_leaves_before_the_next_is_admitted() -> None:
    step = admit(stand_in_line(Line(limit=1), 0, 0), replace(OUTSIDE, is_queued=lambda each: each != 1))
    assert [(row.op, row.entry and row.entry.execution_id) for row in step.log] == [(Op.REMOVED, 1), (Op.ADMITTED, 2)]


def test_a_step_that_stops_at_its_bound_says_so() -> None:
    ended = replace(OUTSIDE, is_queued=lambda each: each > 5)
    step = admit(stand_in_line(Line(limit=1), *[0] * 6), ended)
    assert step.again
    assert admitted(step.line, ended) == [6]
    assert admit(stand_in_line(Line(), 0, 0), replace(OUTSIDE, admitted_max=1)).again


def test_a_head_that_nobody_could_run_holds_all_behind_it() -> None:
    step = admit(stand_in_line(Line(limit=3), 0, 0, 0), replace(OUTSIDE, is_runnable=lambda each: each != 2))
    assert step.line.held
    assert not step.again
    assert [row.entry.execution_id for row in step.log if row.entry] == [1]


def test_a_rate_counts_the_admissions_within_its_window() -> None:
    line = stand_in_line(Line(rate=Rate(max=2, window=timedelta(seconds=10))), 0, 0, 0)
    line = admit(line, OUTSIDE).line
    assert admitted(line, replace(OUTSIDE, now=NOW + timedelta(seconds=9))) == []
    assert admitted(line, replace(OUTSIDE, now=NOW + timedelta(seconds=10))) == [3]


def test_a_lowered_limit_takes_no_slot_away_and_a_pause_admits_nobody() -> None:
    line = admit(stand_in_line(Line(limit=2), 0, 0, 0), OUTSIDE).line
    lowered = follow_policy(line, 1).line
    assert len(lowered.active) == 2
    assert admitted(release(lowered, {1}).line) == []
    empty = release(lowered, {1, 2}).line
    assert admitted(pause(empty).line) == []
    assert admitted(resume(pause(empty).line).line) == [3]
