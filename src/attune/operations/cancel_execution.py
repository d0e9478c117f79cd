"""Stops an execution: at once where nothing runs, otherwise by asking its worker."""

from attune.domain.errors import NotFound
from attune.domain.execution import NOT_STARTED, Change, Failure, Status
from attune.domain.messages import MessageType, cancel_topic
from attune.operations.change_executions import change_executions
from attune.storage import executions
from attune.storage.tx import Tx


async def cancel_execution(tx: Tx, execution_id: int, *, actor: str) -> None:
    """Cancel; asking again, or asking after the end, changes nothing."""
    locked = (await executions.lock_many(tx, [execution_id])).get(execution_id)
    if locked is None:
        if not await executions.exists(tx, execution_id):
            msg = f"execution {execution_id} does not exist"
            raise NotFound(msg)
        return
    running = locked.running
    if running.status is Status.CANCELING:
        return
    at_once = running.status in NOT_STARTED
    change = Change(
        execution_id=execution_id,
        current=running.status,
        attempt=running.attempt,
        target=Status.CANCELLED if at_once else Status.CANCELING,
        actor=actor,
        reason="cancel requested",
        failure=Failure(code="cancelled", message=f"cancelled by {actor}", by=actor) if at_once else None,
    )
    await change_executions(tx, [change])
    if not at_once and locked.worker_id is not None:
        tx.announce(
            cancel_topic(locked.worker_id),
            MessageType.EXECUTION_CANCEL_REQUESTED,
            [(execution_id, running.attempt)],
        )
