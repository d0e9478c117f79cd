"""What becomes of a dispatch that no worker took in time: another worker's turn, as long as it is still waiting."""

from collections.abc import Sequence

from attune.domain.endings.dead_letters import ACTOR, Expired, Expiry, Outcome, decide_burials, outcome_of
from attune.domain.execution import Status
from attune.domain.messages import Item, MessageType, dispatch_topic
from attune.operations.finish_executions import apply_endings
from attune.runtime.failpoints import afailpoint
from attune.storage import assignments, dead_letters, executions
from attune.storage.availability import serving
from attune.storage.dead_letters import Buried
from attune.storage.executions import Locked
from attune.storage.tx import Tx


async def bury_dead_letters(tx: Tx, expiries: Sequence[Expiry], *, placements_max: int) -> list[Outcome]:
    """Act on those still scheduled for the attempt that died; everything else has moved on by itself."""
    expiries = list({each.item: each for each in expiries}.values())
    locked = await executions.lock_many(tx, sorted({each.item[0] for each in expiries}))
    current = {each.item: locked[each.item[0]] for each in expiries if _is_current(locked, each.item)}
    patient = await _send_again(tx, sorted(current))
    unserved = await serving.list_unserved(tx, sorted({row.waiting.action_id for row in current.values()}))
    expired = [
        Expired(
            running=row.running,
            priority=row.waiting.priority,
            placements=row.placements,
            pinned=row.pinned,
            served=row.waiting.action_id not in unserved,
        )
        for item, row in current.items()
        if item not in patient
    ]
    changes = {
        (change.execution_id, change.attempt): change
        for change in decide_burials(expired, placements_max=placements_max)
    }
    buried = [
        Buried(expiry=each, outcome=outcome_of(changes.get(each.item))) for each in expiries if each.item not in patient
    ]
    await afailpoint("dlq.bury.before_write")
    # Before the changes, which take away the assignments that tell which worker it was.
    await dead_letters.insert_buried(tx, buried, by=ACTOR)
    await apply_endings(tx, list(changes.values()), locked)
    return [each.outcome for each in buried]


def _is_current(locked: dict[int, Locked], item: Item) -> bool:
    row = locked.get(item[0])
    return row is not None and row.running.status is Status.SCHEDULED and row.running.attempt == item[1]


async def _send_again(tx: Tx, items: Sequence[Item]) -> set[Item]:
    """Those who may wait longer than the queue lets anybody: their worker is told once more."""
    patient = await assignments.list_patient(tx, items)
    for item, worker_id in patient.items():
        tx.announce(dispatch_topic(worker_id), MessageType.EXECUTION_DISPATCHED, [item])
    return set(patient)
