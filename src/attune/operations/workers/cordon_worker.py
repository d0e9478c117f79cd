"""Keeps placement away from a worker, or lets it come back; what the worker has goes on."""

from attune.domain.errors import NotFound
from attune.domain.messages import MessageType, cancel_topic
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.workers.hint_room import hint_room
from attune.storage.availability import steering
from attune.storage.availability.steering import Steered
from attune.storage.tx import Tx


async def cordon_worker(tx: Tx, worker_id: int, *, by: Actor) -> None:
    """Place nothing more there; what was placed is still started. Cordoning again changes nothing."""
    worker = await lock_worker(tx, worker_id)
    if worker.cordoned:
        return
    await steering.save(tx, worker_id, status=worker.status, cordoned=True)
    await write_audit(tx, [Deed(operation="worker.cordon", resource=f"worker/{worker_id}", by=by)])


async def uncordon_worker(tx: Tx, worker_id: int, *, by: Actor) -> None:
    """Let placement come back, also after a drain; a worker that is stopping goes on stopping."""
    worker = await lock_worker(tx, worker_id)
    if not worker.cordoned:
        return
    drained = worker.status == "draining" and not worker.leaving
    await steering.save(tx, worker_id, status="active" if drained else worker.status, cordoned=False)
    await hint_room(tx)
    tell_worker(tx, worker_id)
    await write_audit(tx, [Deed(operation="worker.uncordon", resource=f"worker/{worker_id}", by=by)])


async def lock_worker(tx: Tx, worker_id: int) -> Steered:
    """Lock one worker; raises if there is none of this id."""
    worker = await steering.lock(tx, worker_id)
    if worker is None:
        raise NotFound(f"worker {worker_id} does not exist")
    return worker


def tell_worker(tx: Tx, worker_id: int) -> None:
    """A ping makes a worker look at its row at once, instead of at its next heartbeat."""
    tx.announce(cancel_topic(worker_id), MessageType.WORKER_PINGED, [(worker_id, 0)])
