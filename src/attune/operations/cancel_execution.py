"""Stops an execution and everything below it: at once where nothing runs, otherwise by asking the worker."""

from attune.domain.endings.cancelling import Relative, attempts_to_stop, decide_cancels
from attune.domain.errors import NotFound
from attune.domain.messages import MessageType, cancel_topic
from attune.operations.change_executions import change_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import executions, families
from attune.storage.tx import Tx

# Deeper than this no family goes, and more of its members are not stopped in one transaction: asking again, or the
# end of their parents, stops the rest.
DEPTH_MAX = 20
FAMILY_MAX = 10_000


async def cancel_execution(tx: Tx, execution_id: int, *, actor: str, force: bool = False) -> None:
    """Cancel; asking again, or asking after the end, changes nothing.

    By force the leases are revoked and the end is written at once: a worker that still runs it finds its lease gone.
    """
    parents = await families.list_live(tx, execution_id, depth_max=DEPTH_MAX, limit=FAMILY_MAX)
    locked = await executions.lock_many(tx, sorted({execution_id, *parents}))
    if execution_id not in locked:
        if not await executions.exists(tx, execution_id):
            raise NotFound(f"execution {execution_id} does not exist")
        return
    family = [
        Relative(running=locked[each].running, parent=parent, has_worker=locked[each].worker_id is not None)
        for each, parent in {execution_id: None, **parents}.items()
        if each in locked
    ]
    changes = decide_cancels(family, actor=actor, force=force)
    await afailpoint("cancel.before_write")
    await change_executions(tx, changes)
    for stopped, attempt in attempts_to_stop(family, changes).items():
        worker_id = locked[stopped].worker_id
        if worker_id is not None:
            tx.announce(cancel_topic(worker_id), MessageType.EXECUTION_CANCEL_REQUESTED, [(stopped, attempt)])
