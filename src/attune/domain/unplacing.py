"""What becomes of an attempt that was placed and never started: another worker's turn, or the end of patience."""

from attune.domain.execution import Change, Failure, Status
from attune.domain.json_values import Json
from attune.domain.retry import Running


def decide_unplacing(
    scheduled: Running,
    *,
    placements: int,
    placements_max: int,
    actor: str,
    reason: str,
    failure: Failure | None = None,
    result: Json = None,
) -> Change:
    """Back to waiting for a worker, or failed when its placements are spent; the last two say how it then failed."""
    spent = placements >= placements_max
    exhausted = failure or Failure(
        code="placement_exhausted",
        message=f"no worker started it in {placements} placements; the last one: {reason}",
        by=actor,
    )
    return Change(
        execution_id=scheduled.execution_id,
        current=Status.SCHEDULED,
        attempt=scheduled.attempt,
        target=Status.FAILED if spent else Status.SCHEDULING,
        actor=actor,
        reason=reason,
        failure=exhausted if spent else None,
        result=result if spent else None,
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
