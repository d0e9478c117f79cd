"""Ends what took too long: attempts nobody picked up, and attempts that outlived their deadline."""

from collections.abc import Callable

from attune.domain.execution import Failure, Status
from attune.domain.retry import Ending, Outcome, decide_ending
from attune.domain.unplacing import Unplacing
from attune.operations.finish_executions import apply_endings
from attune.operations.unplace_executions import unplace_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import assignments, executions
from attune.storage.availability import serving
from attune.storage.tx import Tx

PICK_UP_ACTOR = "execution_timeout_monitor"
DEADLINE_ACTOR = "deadline sweep"
# One pass takes at most this many; the next pass takes the rest.
EXPIRED_MAX = 500


async def expire_scheduled(tx: Tx, *, timeout_seconds: float, placements_max: int) -> int:
    """Take attempts that waited too long elsewhere, or fail them where nobody else is or placements are spent."""
    overdue = await assignments.list_overdue_unstarted(tx, timeout_seconds=timeout_seconds, limit=EXPIRED_MAX)
    if not overdue:
        return 0
    failure = Failure(
        code="scheduled_timeout",
        message="Execution timeout: worker did not pick up task within timeout",
        by=PICK_UP_ACTOR,
    )
    why = Unplacing(
        actor=PICK_UP_ACTOR,
        reason=f"not picked up within {timeout_seconds:g} s",
        placements_max=placements_max,
        failure=failure,
        # What scripts written against the specification look for.
        result={"error": failure.message, "failed_by": PICK_UP_ACTOR},
    )
    await afailpoint("sweep.scheduled_timeout.selected")
    stranded = await serving.list_unserved_executions(tx, [execution_id for execution_id, _ in overdue])
    return len(await unplace_executions(tx, overdue, why=why, stranded=frozenset(stranded)))


async def expire_deadlines(tx: Tx, *, draw: Callable[[], float]) -> int:
    """End attempts whose worker should have ended them already."""
    overdue = await assignments.list_past_deadline(tx, limit=EXPIRED_MAX)
    if not overdue:
        return 0
    await afailpoint("sweep.deadline.selected")
    attempts = dict(overdue)
    locked, _ = await executions.lock_ending(tx, sorted(attempts))
    failure = Failure(code="timeout", message="ran past its deadline and its worker did not end it", by=DEADLINE_ACTOR)
    changes = [
        decide_ending(row.running, Ending(outcome=Outcome.TIMEOUT, failure=failure), actor=DEADLINE_ACTOR, draw=draw)
        for execution_id, row in locked.items()
        if row.running.attempt == attempts[execution_id] and row.running.status in {Status.RUNNING, Status.CANCELING}
    ]
    return len(await apply_endings(tx, changes, locked))
