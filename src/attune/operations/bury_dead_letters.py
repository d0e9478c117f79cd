"""What becomes of a dispatch that no worker took in time: another worker's turn, as long as it is still waiting."""

from collections.abc import Sequence

from attune.domain.execution import Change, Failure, Status
from attune.domain.json_values import Json
from attune.domain.messages import Item
from attune.domain.unplacing import Unplacing, decide_unplacing
from attune.operations.finish_executions import apply_endings
from attune.storage import executions
from attune.storage.executions import Locked
from attune.storage.tx import Tx

ACTOR = "dead_letter_handler"
EXPIRED = Failure(
    code="worker_queue_ttl_expired",
    message="Worker did not process execution within configured TTL",
    by=ACTOR,
)
# What scripts written against the specification look for.
EXPIRED_RESULT: Json = {"error": "Worker queue TTL expired", "message": EXPIRED.message, "failed_by": ACTOR}


async def bury_dead_letters(tx: Tx, items: Sequence[Item], *, placements_max: int) -> int:
    """Act on those still scheduled for the attempt that died; everything else has moved on by itself."""
    attempts = dict(items)
    locked = await executions.lock_many(tx, sorted(attempts))
    changes = [
        _decide(row, placements_max=placements_max)
        for execution_id, row in locked.items()
        if row.running.status is Status.SCHEDULED and row.running.attempt == attempts[execution_id]
    ]
    return len(await apply_endings(tx, changes, locked))


def _decide(row: Locked, *, placements_max: int) -> Change:
    """Pinned work has nowhere else to go: for it the first expiry is the last."""
    why = Unplacing(
        actor=ACTOR,
        reason="Worker queue TTL expired",
        placements_max=0 if row.pinned else placements_max,
        failure=EXPIRED,
        result=EXPIRED_RESULT,
    )
    return decide_unplacing(row.running, placements=row.placements, why=why)
