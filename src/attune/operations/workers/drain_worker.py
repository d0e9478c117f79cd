"""Empties a worker: nothing more is placed there, what it has not started goes elsewhere, what runs ends in peace."""

from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.attend_workers import DRAINED, hand_back_unstarted
from attune.operations.workers.cordon_worker import lock_worker, tell_worker
from attune.runtime.failpoints import afailpoint
from attune.storage.availability import steering
from attune.storage.availability.steering import Steered
from attune.storage.database import Database

# Each pass hands back hundreds, and nothing is placed any more; the worker itself would hand back the rest.
PASSES_MAX = 1000
LISTENING = frozenset({"active", "unresponsive"})


async def drain_worker(database: Database, worker_id: int, *, by: Actor) -> int:
    """Drain; returns how many executions were handed back. Draining again finds nothing more to do.

    Two steps, because executions are locked before workers: first no placement can follow, then what came before
    is taken back. If this process dies in between, the worker does the second step when it sees its row.
    """
    worker = await _close(database, worker_id, by=by)
    await afailpoint("drain.closed.before_hand_back")
    handed_back = 0
    for _ in range(PASSES_MAX):
        async with database.transaction() as tx:
            done = await hand_back_unstarted(tx, instance=worker.instance, actor=by.name, reason=DRAINED)
        handed_back += done
        if not done:
            break
    return handed_back


async def _close(database: Database, worker_id: int, *, by: Actor) -> Steered:
    async with database.transaction() as tx:
        worker = await lock_worker(tx, worker_id)
        status = "draining" if worker.status in LISTENING else worker.status
        if not worker.cordoned or status != worker.status:
            await steering.save(tx, worker_id, status=status, cordoned=True)
            tell_worker(tx, worker_id)
            await write_audit(tx, [Deed(operation="worker.drain", resource=f"worker/{worker_id}", by=by)])
    return worker
