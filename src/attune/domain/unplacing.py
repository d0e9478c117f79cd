"""What becomes of an attempt that was placed and never started: another worker's turn, or the end of patience."""

from dataclasses import dataclass

from attune.domain.execution import Change, Failure, Status
from attune.domain.json_values import Json
from attune.domain.retry import Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplacing:
    """Why attempts are taken from their worker, and how one fails whose placements are spent."""

    actor: str
    reason: str
    placements_max: int
    failure: Failure | None = None
    result: Json = None


def decide_unplacing(scheduled: Running, *, placements: int, why: Unplacing, nowhere_to_go: bool = False) -> Change:
    """Back to waiting for a worker, or failed when its placements are spent or nobody else could take it."""
    spent = nowhere_to_go or placements >= why.placements_max
    exhausted = why.failure or Failure(
        code="placement_exhausted",
        message=f"no worker started it in {placements} placements; the last one: {why.reason}",
        by=why.actor,
    )
    return Change(
        execution_id=scheduled.execution_id,
        current=Status.SCHEDULED,
        attempt=scheduled.attempt,
        target=Status.FAILED if spent else Status.SCHEDULING,
        actor=why.actor,
        reason=why.reason,
        failure=exhausted if spent else None,
        result=why.result if spent else None,
    )


def decide_hand_back(scheduled: Running, *, actor: str, reason: str) -> Change:
    """Back to waiting for a worker, without counting: its worker was full or is going away, which is nobody's fault."""
    return Change(
        execution_id=scheduled.execution_id,
        current=Status.SCHEDULED,
        attempt=scheduled.attempt,
        target=Status.SCHEDULING,
        placements_added=-1,
        actor=actor,
        reason=reason,
    )
