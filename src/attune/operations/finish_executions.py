"""The end of attempts, as reported by the worker that ran them: fenced by attempt and lease."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attune.domain.execution import Change, Status
from attune.domain.messages import MessageType
from attune.domain.retry import Ending, decide_ending
from attune.operations.change_executions import change_executions
from attune.operations.keep_unplaced import keep_unplaced, tell_of_room
from attune.operations.workers.quarantine_actions import clear_suspects
from attune.storage import executions, lines
from attune.storage.assignments import Held
from attune.storage.executions import Locked
from attune.storage.output import late_results
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How an attempt ended, from the holder of its lease."""

    held: Held
    worker_id: int
    ending: Ending


async def finish_executions(tx: Tx, reports: Sequence[Report], *, actor: str, draw: Callable[[], float]) -> list[bool]:
    """Apply each report whose lease still holds; one that comes too late is kept for people and changes nothing."""
    locked, held = await executions.lock_ending(tx, [report.held.execution_id for report in reports])
    valid = [holds_lease(report, held) for report in reports]
    changes = [
        decide_ending(locked[report.held.execution_id].running, report.ending, actor=actor, draw=draw)
        for report, holds in zip(reports, valid, strict=True)
        if holds
    ]
    await apply_endings(tx, changes, locked)
    late = [report for report, holds in zip(reports, valid, strict=True) if not holds]
    if late:
        await late_results.insert_many(
            tx, [(report.held.execution_id, report.held.attempt, report.worker_id, report.ending) for report in late]
        )
    return valid


def holds_lease(report: Report, held: Mapping[int, Held]) -> bool:
    """Whether a report comes from the attempt that runs, under the lease it was given."""
    return held.get(report.held.execution_id) == report.held


async def apply_endings(tx: Tx, changes: Sequence[Change], locked: dict[int, Locked]) -> list[Change]:
    """Write endings and retries, and the hints a retry needs."""
    done = await change_executions(tx, changes)
    again = [locked[change.execution_id] for change in done if change.target is Status.SCHEDULING]
    await keep_unplaced(tx, [NewUnplaced.of(row.waiting, pool=row.pool) for row in again])
    for change in done:
        if change.target is Status.REQUESTED:
            topic, delay = MessageType.EXECUTION_REQUESTED, change.delay_seconds or 0.0
            tx.announce(topic, topic, [(change.execution_id, 0)], delay_seconds=delay)
    outside = [locked[change.execution_id] for change in done if change.target is Status.REQUESTED]
    await _give_back(tx, outside)
    if again or outside:
        await tell_of_room(tx)
    await clear_suspects(tx, [locked[change.execution_id] for change in done if change.target is Status.SUCCEEDED])
    return done


async def _give_back(tx: Tx, outside: Sequence[Locked]) -> None:
    """A delayed retry leaves its slot to others, without a completion that would say so."""
    if not outside:
        return
    await lines.release(tx, [row.running.execution_id for row in outside])
    lines_left = sorted({row.line_id for row in outside if row.line_id is not None})
    tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0) for line_id in lines_left])
