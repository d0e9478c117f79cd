"""The one way an execution's status is written: guarded update, history by trigger, and what follows the new state."""

from collections.abc import Collection, Sequence

from attune.domain.endings.cancelling import end_stopped
from attune.domain.execution import TERMINAL, Change, Status, may_move
from attune.domain.messages import MessageType
from attune.storage import assignments, executions, families, unplaced
from attune.storage.tx import Tx

# In these states a row is with no worker, so its assignment goes in the same transaction.
WITHOUT_WORKER = TERMINAL | {Status.SCHEDULING, Status.REQUESTED}
# In these states a row does not wait for a worker.
NOT_UNPLACED = TERMINAL | {Status.SCHEDULED, Status.RUNNING}


async def change_executions(tx: Tx, changes: Sequence[Change]) -> list[Change]:
    """Make every move whose guard still holds, and return those that happened.

    The caller has locked the rows in ascending order. Parents that only waited for these to end, end with them.
    """
    if not changes:
        return []
    _refuse_mistakes(changes)
    moved = await executions.change_many(tx, changes)
    done = [change for change in changes if change.execution_id in moved]
    if leaving := [change.execution_id for change in done if change.target in WITHOUT_WORKER]:
        await assignments.delete_many(tx, leaving)
    if settled := [change.execution_id for change in done if _may_have_waited(change)]:
        await unplaced.delete_many(tx, settled)
    ended = [(change.execution_id, change.attempt) for change in done if change.target in TERMINAL]
    if ended:
        tx.ended.update(
            (moved[change.execution_id].action_ref, change.target, _code_of(change))
            for change in done
            if change.target in TERMINAL
        )
        tx.announce(MessageType.EXECUTION_COMPLETED, MessageType.EXECUTION_COMPLETED, ended)
        await _end_parents(tx, {parent for each, _ in ended if (parent := moved[each].parent) is not None})
    return done


async def _end_parents(tx: Tx, parents: Collection[int]) -> None:
    """End those who were asked to stop and had only been waiting for their children; generation by generation."""
    if parents:
        stopping = await families.lock_stopping(tx, sorted(parents))
        stopped = await families.list_childless(tx, sorted(stopping)) if stopping else []
        await change_executions(tx, [end_stopped(stopping[each]) for each in stopped])


def _code_of(change: Change) -> str | None:
    return change.failure.code if change.failure else None


def _may_have_waited(change: Change) -> bool:
    return change.current is Status.SCHEDULING and change.target in NOT_UNPLACED


def _refuse_mistakes(changes: Sequence[Change]) -> None:
    ids = [change.execution_id for change in changes]
    if len(set(ids)) != len(ids):
        # PostgreSQL would silently apply only one of two updates of a row in one statement.
        msg = "two changes of one execution in one batch"
        raise ValueError(msg)
    for change in changes:
        if not may_move(change.current, change.target):
            msg = f"execution {change.execution_id} may not move from {change.current} to {change.target}"
            raise ValueError(msg)
