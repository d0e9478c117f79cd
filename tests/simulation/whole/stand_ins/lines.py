"""In the place of `storage.lines` and `storage.line_upkeep`; `admit_lines` does what `domain.admission` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from attune.domain import admission
from attune.domain.admission import Circumstances, Entry, Line, LogRow, Op, Step
from attune.domain.definitions import LimitMethod
from attune.domain.execution import Status
from attune.domain.lines import LineKey, LinePolicy, LineState
from attune.domain.placement import Waiting
from attune.storage.line_upkeep.controls import LockedLine, Place, WaitingEntry
from attune.storage.line_upkeep.sweeps import Overdue
from attune.storage.lines import Admitted, Joined, NewEntry
from attune.storage.tx import Tx
from tests.simulation.whole.rows import ActionRow, EntryRow, ExecutionRow, LineRow, PolicyRow
from tests.simulation.whole.stand_ins.moments import moment
from tests.simulation.whole.stand_ins.workers import has_candidate
from tests.simulation.whole.store import NO_KEY_UPDATE, Session, session_of


def _lines(s: Session) -> list[LineRow]:
    return sorted(s.rows("line", LineRow), key=lambda row: row.id)


def _entries(s: Session, line_id: int) -> list[EntryRow]:
    return [row for row in s.rows("entry", EntryRow) if row.line_id == line_id]


async def _lock(s: Session, line_ids: Sequence[int]) -> list[LineRow]:
    locked = []
    for id_ in sorted(set(line_ids)):
        await s.lock("line", id_, NO_KEY_UPDATE)
        if (row := s.get("line", id_, LineRow)) is not None:
            locked.append(row)
    return locked


async def find_policies(tx: Tx, action_ids: Sequence[int], *, max_queue_length: int) -> dict[int, LinePolicy]:
    rows = [row for row in session_of(tx).rows("policy", PolicyRow) if row.action_id in action_ids]
    return {
        row.action_id: LinePolicy(
            policy_id=row.id,
            ref=f"policy {row.id}",
            scope=f"action:{row.action_id}",
            parameters=row.parameters,
            max_concurrent=row.limit,
            adaptive=False,
            method=LimitMethod.ENQUEUE,
            rate_max=None,
            rate_window_seconds=None,
            rate_method=None,
            per_day=None,
            max_queue_length=row.max_queue_length,
            keeps_place=row.keeps_place,
        )
        for row in rows
    }


async def insert_missing(tx: Tx, wanted: Mapping[LineKey, LinePolicy]) -> None:
    s = session_of(tx)
    for key in sorted(wanted, key=lambda key: (key.scope, key.group_hash)):
        # Two who insert the same key wait for each other, as at a unique index.
        await s.lock("line key", int.from_bytes(key.group_hash[:6]) ^ hash_of(key.scope), "update")
        if not any(row.key == key for row in _lines(s)):
            policy = wanted[key]
            row = LineRow(
                id=s.store.number("line"),
                key=key,
                policy_id=policy.policy_id,
                limit=policy.max_concurrent,
                last_updated=s.now,
            )
            await s.lock("line", row.id)
            s.insert("line", row)


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()[-6:])


async def lock_by_key(tx: Tx, keys: Sequence[LineKey]) -> tuple[dict[LineKey, LineState], datetime]:
    s = session_of(tx)
    found = [row.id for row in _lines(s) if row.key in keys]
    rows = await _lock(s, found) if len(found) == len(keys) else []
    return {row.key: _state(row) for row in rows}, moment(s.store.clock)


def _state(row: LineRow) -> LineState:
    return LineState(
        line_id=row.id,
        limit=row.limit,
        active=row.active,
        waiting=row.waiting,
        next_seq=row.next_seq,
        recent=(),
        day=None,
        day_count=0,
    )


async def save_joined(tx: Tx, lines: Sequence[Joined]) -> None:
    s = session_of(tx)
    for item in lines:
        row = s.get("line", item.line.line_id, LineRow)
        assert row is not None
        mine = s.change("line", row)
        mine.waiting, mine.next_seq, mine.last_updated = item.line.waiting, item.line.next_seq, s.now


async def insert_entries(tx: Tx, entries: Sequence[NewEntry], *, op: str) -> None:
    s = session_of(tx)
    for entry in entries:
        line = s.get("line", entry.line_id, LineRow)
        assert line is not None
        new = EntryRow(
            id=entry.execution_id,
            line_id=entry.line_id,
            action_id=entry.action_id,
            seq=entry.seq,
            priority=entry.priority,
            timeout_from=s.now,
        )
        s.insert("entry", new)
        s.log.append((line.id, LogRow(op=Op(op), limit_in_force=line.limit, active=line.active, entry=_entry(new))))


def _entry(row: EntryRow) -> Entry:
    return Entry(execution_id=row.id, seq=row.seq, priority=row.priority)


def _read(s: Session, row: LineRow) -> Line:
    entries = _entries(s, row.id)
    return Line(
        limit=row.limit,
        active=frozenset(_entry(entry) for entry in entries if entry.active),
        waiting=frozenset(_entry(entry) for entry in entries if not entry.active),
        next_seq=row.next_seq,
        paused=row.paused,
        held=row.held,
    )


def _write(s: Session, row: LineRow, before: Line, step: Step) -> None:
    """What a step changed of a line, its entries and its log."""
    after = step.line
    if after == before:
        return
    mine = s.change("line", row)
    mine.limit, mine.paused, mine.held = after.limit, after.paused, after.held
    mine.active, mine.waiting = len(after.active), len(after.waiting)
    if step.log:
        mine.last_updated = s.now
    for entry in (before.active | before.waiting) - (after.active | after.waiting):
        s.delete("entry", entry.execution_id)
    for entry in after.active - before.active:
        known = s.get("entry", entry.execution_id, EntryRow)
        assert known is not None
        s.change("entry", known).active = True
    s.log.extend((row.id, logged) for logged in step.log)


async def admit(tx: Tx, line_ids: Sequence[int], ended: Sequence[int], *, limit: int) -> Admitted:
    s = session_of(tx)
    theirs = [entry.line_id for id_ in ended if (entry := s.get("entry", id_, EntryRow))]
    rows = await _lock(s, [*line_ids, *theirs])
    befores = {row.id: _read(s, row) for row in rows}
    steps, asked = _steps(s, rows, ended, limit=limit)
    locked: set[int] = set()
    # Heads are locked before it is decided about them; who was decided about once is not let go.
    while new := sorted(asked - locked):
        for id_ in new:
            await s.lock("execution", id_, NO_KEY_UPDATE)
        locked |= asked
        steps, asked = _steps(s, rows, ended, limit=limit)
    waiting = []
    for row in rows:
        _write(s, row, befores[row.id], steps[row.id])
        news = sorted(steps[row.id].line.active - befores[row.id].active, key=lambda entry: entry.place)
        waiting += [_admitted(s, entry.execution_id) for entry in news]
    return Admitted(waiting=waiting, wake_seconds={row.id: 0.0 for row in rows if steps[row.id].again})


def _steps(
    s: Session, rows: Sequence[LineRow], ended: Sequence[int], *, limit: int
) -> tuple[dict[int, Step], set[int]]:
    """The one step of each line, and whose state it rests on."""
    asked: set[int] = set()

    def is_queued(id_: int) -> bool:
        asked.add(id_)
        execution = s.get("execution", id_, ExecutionRow)
        return execution is not None and execution.status is Status.QUEUED

    outside = Circumstances(
        now=moment(s.store.clock),
        is_queued=is_queued,
        is_runnable=lambda id_: _is_runnable(s, id_),
        admitted_max=limit,
    )
    steps = {}
    for row in rows:
        policy = s.get("policy", row.policy_id, PolicyRow)
        released = admission.release(_read(s, row), _over(s, ended))
        followed = admission.follow_policy(released.line, policy.limit if policy else None)
        admitted = admission.admit(followed.line, outside)
        log = (*released.log, *followed.log, *admitted.log)
        steps[row.id] = Step(line=admitted.line, log=log, again=admitted.again)
    return steps, asked


def _over(s: Session, ids: Sequence[int]) -> set[int]:
    """Ended, or waits outside for a delayed retry."""
    rows = [row for id_ in ids if (row := s.get("execution", id_, ExecutionRow))]
    return {row.id for row in rows if row.ended_at is not None or row.status is Status.REQUESTED}


def _is_runnable(s: Session, id_: int) -> bool:
    row = s.get("execution", id_, ExecutionRow)
    return row is not None and has_candidate(s, row.action)


def _admitted(s: Session, id_: int) -> tuple[Waiting, int]:
    row = s.get("execution", id_, ExecutionRow)
    action = s.get("action", row.action, ActionRow) if row else None
    assert row is not None
    assert action is not None
    return Waiting(execution_id=id_, attempt=row.attempt, action_id=row.action, priority=row.priority), action.pool


async def release(tx: Tx, execution_ids: Sequence[int]) -> None:
    s = session_of(tx)
    entries = [entry for id_ in execution_ids if (entry := s.get("entry", id_, EntryRow))]
    for line_id in sorted({entry.line_id for entry in entries}):
        line = s.get("line", line_id, LineRow)
        assert line is not None
        before = _read(s, line)
        _write(s, line, before, admission.release(before, _over(s, execution_ids)))


async def lock_of(tx: Tx, execution_ids: Sequence[int]) -> None:
    s = session_of(tx)
    await _lock(s, [row.line_id for id_ in execution_ids if (row := s.get("entry", id_, EntryRow))])


async def list_held(tx: Tx, *, limit: int) -> list[int]:
    return [row.id for row in _lines(session_of(tx)) if row.held][:limit]


def _head(s: Session, row: LineRow) -> int:
    waiting = [entry for entry in s.rows("entry", EntryRow) if entry.line_id == row.id and not entry.active]
    return min(waiting, key=lambda entry: (-entry.priority, entry.seq)).id


async def list_stuck(tx: Tx, *, seconds: float, limit: int) -> list[int]:
    s = session_of(tx)
    return [
        row.id
        for row in _lines(s)
        if row.waiting > 0
        and not row.paused
        and (not row.held or _is_runnable(s, _head(s, row)))
        and (row.limit is None or row.active < row.limit)
        and row.last_updated < s.now - seconds
    ][:limit]


async def list_leaked(tx: Tx, *, seconds: float, limit: int) -> list[tuple[int, int]]:
    s = session_of(tx)
    rows = [s.get("execution", entry.id, ExecutionRow) for entry in s.rows("entry", EntryRow) if entry.active]
    leaked = [row for row in rows if row is not None and row.ended_at is not None and row.ended_at < s.now - seconds]
    return sorted((row.id, row.attempt) for row in leaked)[:limit]


async def delete_idle(tx: Tx, *, seconds: float, limit: int) -> int:
    s = session_of(tx)
    kept = {row.line_id for row in s.rows("execution", ExecutionRow) if row.ended_at is None and row.not_before}
    removed = 0
    for row in _lines(s)[:limit]:
        idle = not row.active and not row.waiting and not row.paused and row.last_updated < s.now - seconds
        if not idle or row.id in kept or row.key.group == "{}" or ("line", row.id) in s.store.locks:
            continue
        await s.lock("line", row.id)
        again = s.get("line", row.id, LineRow)
        if again is not None and not again.active and not again.waiting:
            s.delete("line", row.id)
            removed += 1
    return removed


async def find_held_by_ancestors(tx: Tx, parents: Sequence[int]) -> dict[tuple[int, LineKey], int]:
    s = session_of(tx)
    held: dict[tuple[int, LineKey], int] = {}
    for asked in parents:
        row = s.get("execution", asked, ExecutionRow)
        while row is not None:
            entry = s.get("entry", row.id, EntryRow)
            line = s.get("line", entry.line_id, LineRow) if entry and entry.active else None
            if line is not None:
                held.setdefault((asked, line.key), row.id)
            row = s.get("execution", row.parent, ExecutionRow) if row.parent is not None else None
    return held


# By hand, and by sweeps.


async def lock_many(tx: Tx, line_ids: Sequence[int]) -> dict[int, LockedLine]:
    rows = await _lock(session_of(tx), line_ids)
    return {row.id: LockedLine(line_id=row.id, next_seq=row.next_seq, paused=row.paused) for row in rows}


async def save_pause(tx: Tx, line_id: int, *, by: str) -> None:
    s = session_of(tx)
    row = s.get("line", line_id, LineRow)
    assert row is not None
    before = _read(s, row)
    _write(s, row, before, admission.pause(before))


async def save_resume(tx: Tx, line_id: int) -> None:
    s = session_of(tx)
    row = s.get("line", line_id, LineRow)
    assert row is not None
    before = _read(s, row)
    _write(s, row, before, admission.resume(before))
    s.change("line", s.get("line", line_id, LineRow) or row).resumed_at = s.now


async def list_waiting(tx: Tx, line_id: int, *, after: Place, seq_max: int, limit: int) -> list[WaitingEntry]:
    rows = [row for row in _entries(session_of(tx), line_id) if not row.active and row.seq <= seq_max]
    rows = [row for row in rows if (-row.priority, row.seq) > (-after.priority, after.seq)]
    rows.sort(key=lambda row: (-row.priority, row.seq))
    return [WaitingEntry(execution_id=row.id, place=Place(priority=row.priority, seq=row.seq)) for row in rows[:limit]]


async def list_overdue(tx: Tx, *, default_seconds: float, held: bool, limit: int) -> list[Overdue]:
    s = session_of(tx)
    found = []
    for entry in sorted(s.rows("entry", EntryRow), key=lambda row: row.timeout_from):
        line, execution = s.get("line", entry.line_id, LineRow), s.get("execution", entry.id, ExecutionRow)
        if entry.active or line is None or execution is None or execution.status is not Status.QUEUED:
            continue
        policy = s.get("policy", line.policy_id, PolicyRow)
        timeout = policy.queue_timeout_seconds if policy and policy.queue_timeout_seconds else default_seconds
        let_go = _let_go_at(s, line, entry)
        if (let_go is None or let_go > entry.timeout_from) == held and entry.timeout_from < s.now - timeout:
            found.append(Overdue(execution_id=entry.id, line_id=line.id, timeout_seconds=timeout))
    return found[:limit]


async def put_off_timeouts(tx: Tx, execution_ids: Sequence[int]) -> None:
    s = session_of(tx)
    for id_ in execution_ids:
        entry = s.get("entry", id_, EntryRow)
        line = s.get("line", entry.line_id, LineRow) if entry else None
        if entry is not None and line is not None and not entry.active:
            let_go = _let_go_at(s, line, entry)
            s.change("entry", entry).timeout_from = s.now if let_go is None else max(entry.timeout_from, let_go)


def _let_go_at(s: Session, line: LineRow, entry: EntryRow) -> float | None:
    """Since when nobody holds it by hand; None while somebody does."""
    action = s.get("action", entry.action_id, ActionRow)
    if line.paused or (action is not None and action.quarantined_at is not None):
        return None
    released_at = action.released_at if action is not None else None
    return max((at for at in (line.resumed_at, released_at) if at is not None), default=entry.timeout_from)
