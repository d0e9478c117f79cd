"""Puts executions on the workers chosen for them: a new attempt, its assignment, and its dispatch."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from attune.domain.execution import Change, Status
from attune.domain.messages import MessageType, dispatch_topic
from attune.domain.placement import Candidate, Waiting
from attune.operations.change_executions import change_executions
from attune.storage import assignments
from attune.storage.assignments import NewAssignment
from attune.storage.tx import Tx


async def schedule_executions(
    tx: Tx, waiting: Sequence[Waiting], chosen: Mapping[int, Candidate], *, current: Status, actor: str
) -> None:
    """Schedule those for whom a worker was chosen."""
    changes = [
        scheduling_change(item, chosen[item.execution_id].worker_id, current=current, actor=actor)
        for item in waiting
        if item.execution_id in chosen
    ]
    instances = {execution_id: UUID(candidate.instance) for execution_id, candidate in chosen.items()}
    await assign(tx, await change_executions(tx, changes), instances)


def scheduling_change(item: Waiting, worker_id: int, *, current: Status, actor: str, reason: str = "") -> Change:
    """The move that mints an attempt on a worker."""
    return Change(
        execution_id=item.execution_id,
        current=current,
        attempt=item.attempt,
        target=Status.SCHEDULED,
        worker_id=worker_id,
        placements_added=1,
        actor=actor,
        reason=reason,
    )


async def assign(tx: Tx, placed: Sequence[Change], instances: Mapping[int, UUID]) -> None:
    """Write the assignments of placed executions and tell their workers; no instance means pinned."""
    new = [
        NewAssignment(
            execution_id=change.execution_id,
            attempt=change.next_attempt,
            worker_id=change.worker_id,
            worker_instance=instances.get(change.execution_id),
        )
        for change in placed
        if change.worker_id is not None
    ]
    if new:
        await assignments.insert_many(tx, new)
    for item in new:
        told = [(item.execution_id, item.attempt)]
        tx.announce(dispatch_topic(item.worker_id), MessageType.EXECUTION_DISPATCHED, told)
