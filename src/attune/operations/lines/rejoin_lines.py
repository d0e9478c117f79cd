"""Puts executions that were accepted earlier into their lines: delayed starts, and delayed retries."""

from collections.abc import Sequence
from dataclasses import replace

from attune.domain.execution import Change, Status
from attune.domain.lines import LineKey, LinePolicy
from attune.domain.messages import MessageType
from attune.operations.change_executions import change_executions
from attune.operations.lines.join_lines import LockedLines, lock_lines
from attune.storage import executions, lines
from attune.storage.executions import Due
from attune.storage.lines import NewEntry
from attune.storage.tx import Tx


async def rejoin_lines(tx: Tx, due: Sequence[tuple[Due, LineKey, LinePolicy]], *, actor: str) -> None:
    """Join, those who had a place before with the seq they had; a full line does not keep them out."""
    locked = await lock_lines(tx, {key: policy for _, key, policy in due})
    requested = await executions.lock_requested(tx, [item.execution_id for item, _, _ in due])
    waiting = {item.waiting.execution_id: item.waiting for item in requested}
    entries = [
        _enter(locked, item, key, priority=waiting[item.execution_id].priority)
        for item, key, _ in due
        if item.execution_id in waiting
    ]
    if not entries:
        return
    await lines.save_joined(tx, locked.joined())
    await lines.insert_entries(tx, entries, op="rejoin")
    await executions.save_places(tx, [(entry.execution_id, entry.line_id, entry.seq) for entry in entries])
    await change_executions(
        tx,
        [
            Change(
                execution_id=entry.execution_id,
                current=Status.REQUESTED,
                attempt=waiting[entry.execution_id].attempt,
                target=Status.QUEUED,
                actor=actor,
            )
            for entry in entries
        ],
    )
    told = sorted({entry.line_id for entry in entries})
    tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0) for line_id in told])


def _enter(locked: LockedLines, item: Due, key: LineKey, *, priority: int) -> NewEntry:
    line = locked.states[key]
    # A seq means something only in the line that gave it: a changed policy may have led elsewhere.
    returns = item.line_id == line.line_id and item.line_seq is not None and locked.policies[key].keeps_place
    seq = item.line_seq if returns and item.line_seq is not None else line.next_seq
    locked.states[key] = replace(
        line, waiting=line.waiting + 1, next_seq=line.next_seq if returns else line.next_seq + 1
    )
    locked.counts[key] = locked.counts.get(key, 0) + 1
    return NewEntry(
        execution_id=item.execution_id, line_id=line.line_id, action_id=item.action_id, seq=seq, priority=priority
    )
