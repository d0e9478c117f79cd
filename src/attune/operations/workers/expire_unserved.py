"""Gives up on executions that no living worker could run: at the end of their grace, or of the queue timeout."""

from collections.abc import Sequence

from attune.domain.availability.missing import no_worker
from attune.domain.execution import Change, Status
from attune.operations.change_executions import change_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import executions
from attune.storage.availability import serving
from attune.storage.availability.serving import Stranded
from attune.storage.tx import Tx

ACTOR = "no worker sweep"
# One pass takes at most this many; the next pass takes the rest.
EXPIRED_MAX = 500
WAITING = frozenset({Status.REQUESTED, Status.QUEUED, Status.SCHEDULING})


async def expire_unserved(tx: Tx, *, timeout_seconds: float) -> int:
    """Fail who waited too long for a worker that does not exist; returns how many."""
    stranded = await serving.list_stranded(tx, timeout_seconds=timeout_seconds, limit=EXPIRED_MAX)
    failed = len(await _fail(tx, stranded)) if stranded else 0
    await afailpoint("sweep.no_worker.before_commit")
    await serving.settle_served(tx, limit=EXPIRED_MAX)
    return failed


async def _fail(tx: Tx, stranded: Sequence[Stranded]) -> list[Change]:
    locked = await executions.lock_many(tx, [item.execution_id for item in stranded])
    # Asked again under the locks: a worker may have come meanwhile.
    unserved = await serving.list_unserved(tx, sorted({item.action_id for item in stranded}))
    living = await serving.list_living(tx)
    changes = []
    for item in stranded:
        row = locked.get(item.execution_id)
        if row is None or item.action_id not in unserved or row.running.status not in WAITING:
            continue
        failure = no_worker(unserved[item.action_id], living, by=ACTOR)
        changes.append(
            Change(
                execution_id=item.execution_id,
                current=row.running.status,
                attempt=row.running.attempt,
                target=Status.FAILED,
                actor=ACTOR,
                reason=failure.message,
                failure=failure,
            )
        )
    return await change_executions(tx, changes)
