"""The state machine of an execution."""

from __future__ import annotations

import pytest

from attune.domain.execution import BIRTHS, TERMINAL, TRANSITIONS, Change, Status, diagram, may_move


def test_every_status_has_its_row_in_the_table() -> None:
    assert set(TRANSITIONS) == set(Status)


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_a_terminal_status_is_never_left(status: Status) -> None:
    assert not any(may_move(status, target) for target in Status)


def test_every_status_can_be_reached_and_every_life_can_end() -> None:
    reached = set(BIRTHS)
    while (grown := reached | {target for status in reached for target in TRANSITIONS[status]}) != reached:
        reached = grown
    assert reached == set(Status)
    ending = set(TERMINAL)
    while (grown := ending | {status for status in Status if TRANSITIONS[status] & ending}) != ending:
        ending = grown
    assert ending == set(Status)


def test_only_a_placement_mints_an_attempt() -> None:
    for target in Status:
        change = Change(execution_id=1, current=Status.REQUESTED, attempt=3, target=target, actor="test")
        assert change.next_attempt == (4 if target is Status.SCHEDULED else 3)


def test_the_diagram_shows_every_move() -> None:
    lines = diagram().splitlines()
    for current, targets in TRANSITIONS.items():
        for target in targets:
            assert f"    {current} --> {target}" in lines
