"""Finds attempts whose worker is gone: those that never started go elsewhere, those that did end or are tried again."""

from collections.abc import Callable

from attune.domain.execution import Change, Failure, Status
from attune.domain.retry import Ending, Outcome, decide_ending
from attune.domain.unplacing import Unplacing, decide_unplacing
from attune.operations.finish_executions import apply_endings
from attune.operations.workers.quarantine_actions import count_losses
from attune.runtime.failpoints import afailpoint
from attune.storage import assignments, executions, workers
from attune.storage.assignments import Lost
from attune.storage.executions import Locked
from attune.storage.tx import Tx

ACTOR = "lost worker sweep"
# One pass takes at most this many; the next pass takes the rest.
RESCUED_MAX = 500


async def rescue_lost(tx: Tx, *, placements_max: int, draw: Callable[[], float]) -> int:
    """Act on every lost attempt; safe on every replica at once. Returns how many executions moved."""
    suspected = await assignments.list_lost(tx, limit=RESCUED_MAX)
    moved: list[Change] = []
    if suspected:
        await afailpoint("sweep.lost_workers.selected")
        locked, _ = await executions.lock_ending(tx, [item.execution_id for item in suspected])
        # The lease may have been renewed, or the attempt ended, between looking and locking.
        lost = await assignments.list_lost(tx, limit=2 * RESCUED_MAX)
        changes = [
            _decide(row, item, placements_max=placements_max, draw=draw)
            for item in lost
            if (row := locked.get(item.execution_id)) and _is_current(row, item)
        ]
        moved = await apply_endings(tx, changes, locked)
        gone = {(change.execution_id, change.attempt) for change in moved}
        await count_losses(
            tx,
            [
                (locked[item.execution_id].waiting.action_id, item.worker_instance)
                for item in lost
                if item.started and (item.execution_id, item.attempt) in gone and item.worker_instance
            ],
        )
    await workers.mark_stale_lost(tx)
    return len(moved)


def _is_current(row: Locked, item: Lost) -> bool:
    expected = {Status.RUNNING, Status.CANCELING} if item.started else {Status.SCHEDULED}
    return row.running.attempt == item.attempt and row.running.status in expected


def _decide(row: Locked, item: Lost, *, placements_max: int, draw: Callable[[], float]) -> Change:
    if not item.started:
        why = Unplacing(actor=ACTOR, reason=item.cause, placements_max=placements_max)
        return decide_unplacing(row.running, placements=row.placements, why=why)
    failure = Failure(
        code="worker_lost",
        message=f"worker {item.worker_id} was lost while it ran attempt {item.attempt}: {item.cause}",
        by=ACTOR,
    )
    return decide_ending(row.running, Ending(outcome=Outcome.WORKER_LOST, failure=failure), actor=ACTOR, draw=draw)
