"""What asking an execution to stop leads to."""

from __future__ import annotations

import pytest

from attune.domain.definitions import RetryPolicy
from attune.domain.endings.cancelling import Relative, attempts_to_stop, decide_cancels
from attune.domain.execution import TERMINAL, Status
from attune.domain.retry import Running

LIVE = [status for status in Status if status not in TERMINAL]


def relative(
    execution_id: int, status: Status, *, parent: int | None = None, has_worker: bool | None = None
) -> Relative:
    on_worker = status in {Status.SCHEDULED, Status.RUNNING, Status.CANCELING}
    running = Running(
        execution_id=execution_id,
        status=status,
        attempt=2,
        tries=1,
        max_attempts=3,
        retry=RetryPolicy(),
        idempotent=False,
        on_worker_lost=None,
    )
    return Relative(running=running, parent=parent, has_worker=on_worker if has_worker is None else has_worker)


def targets(family: list[Relative], *, force: bool = False) -> dict[int, Status]:
    return {change.execution_id: change.target for change in decide_cancels(family, actor="ana", force=force)}


@pytest.mark.parametrize("status", LIVE)
def test_every_state_has_its_answer(status: Status) -> None:
    expected = {
        Status.RUNNING: {1: Status.CANCELING},
        Status.CANCELING: {},
    }.get(status, {1: Status.CANCELLED})
    assert targets([relative(1, status)]) == expected


@pytest.mark.parametrize("status", LIVE)
def test_force_ends_every_state_at_once(status: Status) -> None:
    assert targets([relative(1, status)], force=True) == {1: Status.CANCELLED}


def test_only_workers_that_run_something_are_told() -> None:
    family = [
        relative(1, Status.RUNNING),
        relative(2, Status.SCHEDULED, parent=1),
        relative(3, Status.QUEUED, parent=1),
    ]
    assert attempts_to_stop(family, decide_cancels(family, actor="ana", force=False)) == {1: 2}
    assert attempts_to_stop(family, decide_cancels(family, actor="ana", force=True)) == {1: 2}


def test_a_parent_that_only_waits_ends_with_its_last_child() -> None:
    parent = relative(1, Status.RUNNING, has_worker=False)
    waiting, running = relative(2, Status.QUEUED, parent=1), relative(3, Status.RUNNING, parent=1)

    assert targets([parent]) == {1: Status.CANCELLED}
    assert targets([parent, waiting]) == {1: Status.CANCELLED, 2: Status.CANCELLED}
    assert targets([parent, waiting, running]) == {1: Status.CANCELING, 2: Status.CANCELLED, 3: Status.CANCELING}
    assert set(targets([parent, waiting, running], force=True).values()) == {Status.CANCELLED}


def test_a_running_grandchild_keeps_everybody_above_it_waiting() -> None:
    family = [
        relative(1, Status.RUNNING, has_worker=False),
        relative(2, Status.RUNNING, parent=1, has_worker=False),
        relative(3, Status.RUNNING, parent=2),
    ]
    assert targets(family) == dict.fromkeys((1, 2, 3), Status.CANCELING)


def test_the_reason_tells_whom_it_was_cancelled_with() -> None:
    family = [relative(1, Status.RUNNING), relative(2, Status.QUEUED, parent=1)]
    [_, child] = decide_cancels(family, actor="ana", force=False)
    assert child.failure is not None
    assert child.failure.message == "cancelled by ana with execution 1"
