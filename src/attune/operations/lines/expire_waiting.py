"""Gives up on executions that waited in line longer than their policy allows."""

from attune.domain.execution import Change, Failure, Status
from attune.operations.change_executions import change_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import executions
from attune.storage.line_upkeep import controls, sweeps
from attune.storage.tx import Tx

ACTOR = "queue timeout sweep"
# One pass takes at most this many; the next pass takes the rest.
EXPIRED_MAX = 500
# More than of the others, so that a long line that is paused is soon out of their way.
PUT_OFF_MAX = 5000


async def expire_waiting(tx: Tx, *, default_seconds: float) -> int:
    """Fail who waited too long and still waits; returns how many.

    In a paused line nobody's time runs, nor that of a quarantined action; when it is let go on, it begins anew.
    """
    found = await sweeps.list_overdue(tx, default_seconds=default_seconds, held=False, limit=EXPIRED_MAX)
    held = await sweeps.list_overdue(tx, default_seconds=default_seconds, held=True, limit=PUT_OFF_MAX)
    if not found and not held:
        return 0
    await afailpoint("sweep.queue_timeout.selected")
    lines = await controls.lock_many(tx, sorted({entry.line_id for entry in [*found, *held]}))
    if held:
        await sweeps.put_off_timeouts(tx, [entry.execution_id for entry in held])
    overdue = [entry for entry in found if entry.line_id in lines and not lines[entry.line_id].paused]
    locked = await executions.lock_many(tx, sorted(entry.execution_id for entry in overdue))
    changes = [
        Change(
            execution_id=entry.execution_id,
            current=Status.QUEUED,
            attempt=locked[entry.execution_id].running.attempt,
            target=Status.FAILED,
            actor=ACTOR,
            reason=f"waited longer than {entry.timeout_seconds:g} s in line",
            failure=_failure(entry.timeout_seconds),
        )
        for entry in overdue
        if entry.execution_id in locked and locked[entry.execution_id].running.status is Status.QUEUED
    ]
    return len(await change_executions(tx, changes))


def _failure(seconds: float) -> Failure:
    return Failure(code="queue_timeout", message=f"waited longer than {seconds:g} s in line", by=ACTOR)
