"""A worker's claim of the attempts that were dispatched to it: at most once per attempt, however often it is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from attune.domain.execution import Change, Status
from attune.domain.placement import Waiting
from attune.operations.change_executions import change_executions
from attune.storage import assignments, executions
from attune.storage.assignments import Held
from attune.storage.executions import Startable
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """The worker process that claims."""

    worker_id: int
    name: str
    instance: UUID
    lease_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An attempt that now belongs to the claimant, with everything needed to run it."""

    startable: Startable
    lease: UUID


async def start_executions(tx: Tx, claims: Sequence[tuple[int, int]], *, claimant: Claimant) -> list[Started]:
    """Start each attempt that is scheduled here; what is missing from the answer is somebody else's or over."""
    scheduled = await executions.lock_scheduled(tx, [claim[0] for claim in claims])
    held = await assignments.start_many(
        tx,
        [claim for claim in claims if scheduled.get(claim[0]) == claim[1]],
        worker_id=claimant.worker_id,
        instance=claimant.instance,
        lease_seconds=claimant.lease_seconds,
    )
    changes = [_start(item.execution_id, item.attempt, Status.SCHEDULED, claimant) for item in held]
    started = {change.execution_id for change in await change_executions(tx, changes)}
    return await _list_started(tx, [item for item in held if item.execution_id in started])


async def take_executions(tx: Tx, waiting: Sequence[Waiting], *, current: Status, claimant: Claimant) -> list[Started]:
    """Place executions that wait for a worker on the claimant and start them, in one move; their rows are locked."""
    if not waiting:
        return []
    changes = [_start(item.execution_id, item.attempt, current, claimant) for item in waiting]
    taken = await change_executions(tx, changes)
    held = await assignments.insert_started(
        tx,
        [(change.execution_id, change.next_attempt) for change in taken],
        worker_id=claimant.worker_id,
        instance=claimant.instance,
        lease_seconds=claimant.lease_seconds,
    )
    return await _list_started(tx, held)


def _start(execution_id: int, attempt: int, current: Status, claimant: Claimant) -> Change:
    return Change(
        execution_id=execution_id,
        current=current,
        attempt=attempt,
        target=Status.RUNNING,
        worker_id=claimant.worker_id,
        actor=claimant.name,
    )


async def _list_started(tx: Tx, held: Sequence[Held]) -> list[Started]:
    leases = {item.execution_id: item.lease for item in held}
    startable = await executions.list_startable(tx, list(leases)) if leases else []
    return [Started(startable=item, lease=leases[item.execution_id]) for item in startable]
