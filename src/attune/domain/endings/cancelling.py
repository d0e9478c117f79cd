"""What asking an execution to stop leads to: its end at once, a request to its worker, or nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attune.domain.execution import NOT_STARTED, Change, Failure, Status
from attune.domain.retry import Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """One of a family: the execution that is to stop, or somebody below it. Parents come before their children."""

    running: Running
    parent: int | None
    # Without one it only waits for its children.
    has_worker: bool


def decide_cancels(family: Sequence[Relative], *, actor: str, force: bool) -> list[Change]:
    """The moves of a family that is to stop; those who are stopping already do not move, unless forced."""
    lives_below: dict[int | None, bool] = {}
    changes = []
    # Children first: a parent without a worker ends with the last of them.
    for relative in reversed(family):
        own_id = relative.running.execution_id
        target = _target(relative, lives_below=lives_below.get(own_id, False), force=force)
        if target is not Status.CANCELLED:
            lives_below[relative.parent] = True
        if target is not relative.running.status:
            changes.append(_change(relative, target, first=family[0], actor=actor))
    return changes[::-1]


def _target(relative: Relative, *, lives_below: bool, force: bool) -> Status:
    if force or relative.running.status in NOT_STARTED:
        return Status.CANCELLED
    stops_alone = not relative.has_worker and not lives_below
    return Status.CANCELLED if stops_alone else Status.CANCELING


def _change(relative: Relative, target: Status, *, first: Relative, actor: str) -> Change:
    ends = target is Status.CANCELLED
    cascade = "" if relative is first else f" with execution {first.running.execution_id}"
    forced = ", by force" if ends and relative.running.status not in NOT_STARTED else ""
    failure = Failure(code="cancelled", message=f"cancelled by {actor}{cascade}{forced}", by=actor)
    return Change(
        execution_id=relative.running.execution_id,
        current=relative.running.status,
        attempt=relative.running.attempt,
        target=target,
        actor=actor,
        reason=f"cancel requested{cascade}{forced}",
        failure=failure if ends else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Somebody without a worker who was asked to stop, by whom, and only waits for the end of its children."""

    execution_id: int
    attempt: int
    asked_by: str


def end_stopped(stopping: Stopping) -> Change:
    """Its end, now that its last child has ended."""
    return Change(
        execution_id=stopping.execution_id,
        current=Status.CANCELING,
        attempt=stopping.attempt,
        target=Status.CANCELLED,
        actor=stopping.asked_by,
        reason="its last child ended",
        failure=Failure(code="cancelled", message=f"cancelled by {stopping.asked_by}", by=stopping.asked_by),
    )


def attempts_to_stop(family: Sequence[Relative], changes: Sequence[Change]) -> Mapping[int, int]:
    """Whose workers are to be told, with the attempt that is to stop."""
    with_worker = {each.running.execution_id for each in family if each.has_worker}
    return {
        change.execution_id: change.attempt
        for change in changes
        if change.execution_id in with_worker and change.current not in NOT_STARTED
    }
