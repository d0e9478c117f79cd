"""In the place of `storage.executions`, `families` and `births`: the same questions, asked of rows in memory."""

from __future__ import annotations

from collections.abc import Sequence

from attune.domain.endings.cancelling import Stopping
from attune.domain.execution import TERMINAL, Change, Status, may_move
from attune.domain.placement import Waiting
from attune.domain.retry import Running
from attune.storage.assignments import Held
from attune.storage.births import Birth, Inserted
from attune.storage.executions import Due, Locked, Moved, Requested, Startable
from attune.storage.tx import Tx
from tests.simulation.whole.rows import ActionRow, ExecutionRow
from tests.simulation.whole.stand_ins import assignments, lines
from tests.simulation.whole.stand_ins.moments import moment
from tests.simulation.whole.store import NO_KEY_UPDATE, Move, Session, session_of


def _find(s: Session, id_: int) -> ExecutionRow | None:
    return s.get("execution", id_, ExecutionRow)


def _action(s: Session, row: ExecutionRow) -> ActionRow:
    action = s.get("action", row.action, ActionRow)
    assert action is not None
    return action


def _record(s: Session, row: ExecutionRow, before: Status | None, after: Status | None = None) -> None:
    s.history.append(
        Move(
            execution_id=row.id,
            before=before,
            after=after or row.status,
            attempt=row.attempt,
            actor=row.changed_by,
            reason=row.reason,
            code=row.code,
        )
    )


async def insert_many(tx: Tx, births: Sequence[Birth]) -> list[Inserted]:
    s = session_of(tx)
    rows = []
    for birth in births:
        new = birth.new
        row = ExecutionRow(
            id=s.store.number("execution"),
            action=new.action_id,
            status=birth.status,
            created=s.now,
            priority=new.priority,
            max_attempts=new.max_attempts,
            timeout_seconds=new.timeout_seconds,
            worker=new.pinned_to,
            pinned=new.pinned_to is not None,
            parent=new.parent,
            inherits=birth.inherits,
            line_id=birth.line_id,
            line_seq=birth.line_seq,
            not_before=None if new.not_before is None else (new.not_before - moment(0)).total_seconds(),
            ttl_seconds=new.worker_queue_ttl_seconds,
            parameters=dict(new.parameters),
            worker_by=None if birth.worker_within is None else s.now + birth.worker_within,
            ended_at=s.now if birth.status in TERMINAL else None,
            code=birth.failure.code if birth.failure else None,
            changed_by=new.changed_by,
        )
        s.insert("execution", row)
        _record(s, row, None)
        rows.append(row)
    return [
        Inserted(
            execution_id=row.id,
            created=moment(s.now),
            delay_seconds=max(0.0, (row.not_before or s.now) - s.now),
            status=row.status,
            line_id=row.line_id,
            line_seq=row.line_seq,
            error=None,
        )
        for row in rows
    ]


async def change_many(tx: Tx, changes: Sequence[Change]) -> dict[int, Moved]:
    s = session_of(tx)
    moved = {}
    for change in changes:
        row = _find(s, change.execution_id)
        if row is None or row.status is not change.current or row.attempt != change.attempt:
            continue
        _move(s, s.change("execution", row), change)
        moved[row.id] = Moved(action_ref=_action(s, row).ref, parent=row.parent)
    return moved


def _move(s: Session, row: ExecutionRow, change: Change) -> None:
    before, row.status = row.status, change.target
    row.attempt = change.next_attempt
    row.tries += change.target is Status.RUNNING
    row.placements = 0 if change.target is Status.RUNNING else row.placements + change.placements_added
    row.worker = change.worker_id if change.worker_id is not None else row.worker
    row.cancel_requested = row.cancel_requested or change.target is Status.CANCELING
    row.not_before = None if change.delay_seconds is None else s.now + change.delay_seconds
    row.result = change.result if change.result is not None else row.result
    row.code = change.failure.code if change.failure else None
    row.changed_by, row.reason = change.actor, change.reason
    row.ended_at = s.now if change.target in TERMINAL else None
    # The trigger.
    if change.is_taken:
        _record(s, row, before, Status.SCHEDULED)
        before = Status.SCHEDULED
    _record(s, row, before)
    assert may_move(before, row.status), f"execution {row.id} may not move from {before} to {row.status}"


async def _lock(s: Session, ids: Sequence[int], *statuses: Status) -> list[ExecutionRow]:
    """In ascending order; looked at again once the lock is there."""
    found = []
    for id_ in sorted(set(ids)):
        row = _find(s, id_)
        if row is None or (statuses and row.status not in statuses) or row.ended_at is not None:
            continue
        await s.lock("execution", id_, NO_KEY_UPDATE)
        row = _find(s, id_)
        if row is not None and row.ended_at is None and (not statuses or row.status in statuses):
            found.append(row)
    return found


def _waiting(row: ExecutionRow) -> Waiting:
    return Waiting(execution_id=row.id, attempt=row.attempt, action_id=row.action, priority=row.priority)


def _is_due(s: Session, row: ExecutionRow) -> bool:
    return row.status is Status.REQUESTED and (row.not_before is None or row.not_before <= s.now)


async def lock_requested(tx: Tx, ids: Sequence[int]) -> list[Requested]:
    s = session_of(tx)
    return [
        Requested(waiting=_waiting(row), pool=_action(s, row).pool, pinned_to=row.worker if row.pinned else None)
        for row in await _lock(s, ids, Status.REQUESTED)
        if _is_due(s, row)
    ]


async def lock_scheduling(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[int, int | None]]:
    s = session_of(tx)
    waiting = [id_ for id_ in sorted(ids) if (row := _find(s, id_)) and row.status is Status.SCHEDULING]
    free = [id_ for id_ in waiting if s.try_lock("execution", id_, NO_KEY_UPDATE)]
    return {id_: (row.attempt, row.worker) for id_ in free if (row := _find(s, id_))}


async def lock_scheduled(tx: Tx, ids: Sequence[int]) -> dict[int, int]:
    return {row.id: row.attempt for row in await _lock(session_of(tx), ids) if row.status is Status.SCHEDULED}


async def lock_many(tx: Tx, ids: Sequence[int]) -> dict[int, Locked]:
    s = session_of(tx)
    rows = await _lock(s, [*ids, *_stopping_above(s, ids)])
    return {row.id: _locked(row, _action(s, row)) for row in rows if row.id in ids}


async def lock_ending(tx: Tx, ids: Sequence[int]) -> tuple[dict[int, Locked], dict[int, Held]]:
    await lines.lock_of(tx, ids)
    locked = await lock_many(tx, ids)
    held = await assignments.lock_held(session_of(tx), ids)
    return locked, held


def _stopping_above(s: Session, ids: Sequence[int]) -> set[int]:
    above: set[int] = set()
    todo = list(ids)
    while todo:
        row = _find(s, todo.pop())
        parent = _find(s, row.parent) if row is not None and row.parent is not None else None
        if parent is not None and parent.status is Status.CANCELING and parent.id not in above:
            above.add(parent.id)
            todo.append(parent.id)
    return above


def _locked(row: ExecutionRow, action: ActionRow) -> Locked:
    return Locked(
        running=Running(
            execution_id=row.id,
            status=row.status,
            attempt=row.attempt,
            tries=row.tries,
            max_attempts=row.max_attempts,
            retry=action.retry,
            idempotent=action.idempotent,
            on_worker_lost=action.on_worker_lost,
            pinned=row.pinned,
        ),
        waiting=_waiting(row),
        placements=row.placements,
        pool=action.pool,
        pinned=row.pinned,
        worker_id=row.worker,
        line_id=row.line_id,
        suspect=bool(action.lost_workers),
    )


async def list_startable(tx: Tx, ids: Sequence[int]) -> list[Startable]:
    s = session_of(tx)
    rows = [row for id_ in ids if (row := _find(s, id_))]
    return [
        Startable(
            execution_id=row.id,
            attempt=row.attempt,
            tries=row.tries,
            action_ref=_action(s, row).ref,
            pack_ref="simulated",
            pack_digest="",
            runner=_action(s, row).runner,
            entry_point=None,
            command=None,
            command_from=None,
            image=None,
            container=None,
            http=None,
            parameters=row.parameters,
            parameter_delivery="stdin",
            parameter_format="json",
            output_format="text",
            output_schema=None,
            isolation=_action(s, row).isolation,
            timeout_seconds=row.timeout_seconds,
            traceparent=None,
            waited_seconds=0.0,
        )
        for row in rows
    ]


async def list_due(tx: Tx, *, overdue_seconds: float, limit: int) -> list[int]:
    s = session_of(tx)
    rows = [row for row in s.rows("execution", ExecutionRow) if row.status is Status.REQUESTED]
    overdue = [row.id for row in rows if (row.not_before or row.created) < s.now - overdue_seconds]
    return sorted(overdue)[:limit]


async def exists(tx: Tx, execution_id: int) -> bool:
    return _find(session_of(tx), execution_id) is not None


async def list_live(tx: Tx, execution_id: int, *, depth_max: int, limit: int) -> dict[int, int]:
    s = session_of(tx)
    family: dict[int, int] = {}
    generation = [execution_id]
    for _ in range(depth_max):
        below = [
            (row.id, row.parent)
            for row in s.rows("execution", ExecutionRow)
            if row.parent in generation and row.ended_at is None and row.parent is not None
        ]
        family.update(sorted(below))
        generation = [id_ for id_, _ in below]
    return dict(list(family.items())[:limit])


async def lock_stopping(tx: Tx, ids: Sequence[int]) -> dict[int, Stopping]:
    s = session_of(tx)
    stopping = {}
    for id_ in ids:
        row = _find(s, id_)
        if row is not None and row.status is Status.CANCELING and row.worker is None:
            s.lock_at_once("execution", id_, NO_KEY_UPDATE)
            stopping[id_] = Stopping(execution_id=id_, attempt=row.attempt, asked_by=row.changed_by)
    return stopping


async def list_childless(tx: Tx, ids: Sequence[int]) -> list[int]:
    rows = session_of(tx).rows("execution", ExecutionRow)
    with_children = {row.parent for row in rows if row.ended_at is None}
    return [id_ for id_ in ids if id_ not in with_children]


async def list_patient(tx: Tx, ids: Sequence[int]) -> dict[int, bool]:
    s = session_of(tx)
    rows = [row for id_ in ids if (row := _find(s, id_))]
    return {row.id: row.pinned for row in rows if row.pinned or _action(s, row).runner == "native"}


async def list_moved_by(tx: Tx, attempts: Sequence[tuple[int, int]], actor: str) -> set[tuple[int, int]]:
    moves = session_of(tx).store.table("history").get(0, [])
    return {
        (move.execution_id, move.attempt)
        for move in moves
        if (move.execution_id, move.attempt) in attempts
        and move.actor == actor
        and move.before in {Status.RUNNING, Status.CANCELING}
    }


async def list_requested(tx: Tx, ids: Sequence[int]) -> list[Due]:
    s = session_of(tx)
    rows = [row for id_ in sorted(set(ids)) if (row := _find(s, id_)) and _is_due(s, row)]
    return [
        Due(
            execution_id=row.id,
            action_id=row.action,
            parameters=row.parameters,
            line_id=row.line_id,
            line_seq=row.line_seq,
            pinned=row.pinned,
            parent=row.parent,
        )
        for row in rows
    ]


async def save_places(tx: Tx, places: Sequence[tuple[int, int, int]]) -> None:
    s = session_of(tx)
    for id_, line_id, seq in places:
        if row := _find(s, id_):
            mine = s.change("execution", row)
            mine.line_id, mine.line_seq = line_id, seq


async def save_inherited(tx: Tx, inherited: Sequence[tuple[int, int]]) -> None:
    s = session_of(tx)
    for id_, holder in inherited:
        if row := _find(s, id_):
            s.change("execution", row).inherits = holder
