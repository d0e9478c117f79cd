"""A worker's claim of the attempts that were dispatched to it: at most once per attempt, however often it is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from attune.domain.execution import Change, Status
from attune.operations.change_executions import change_executions
from attune.storage import assignments, executions
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
    ready = [claim for claim in claims if scheduled.get(claim[0]) == claim[1]]
    held = await assignments.start_many(
        tx,
        ready,
        worker_id=claimant.worker_id,
        instance=claimant.instance,
        lease_seconds=claimant.lease_seconds,
    )
    actor = claimant.name
    changes = [
        Change(
            execution_id=item.execution_id,
            current=Status.SCHEDULED,
            attempt=item.attempt,
            target=Status.RUNNING,
            worker_id=claimant.worker_id,
            actor=actor,
        )
        for item in held
    ]
    leases = {item.execution_id: item.lease for item in held}
    started = [change.execution_id for change in await change_executions(tx, changes)]
    startable = await executions.list_startable(tx, started) if started else []
    return [Started(startable=item, lease=leases[item.execution_id]) for item in startable]
