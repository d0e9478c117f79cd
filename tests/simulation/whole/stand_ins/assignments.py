"""In the place of `storage.assignments` and `storage.unplaced`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from attune.domain.placement import Waiting
from attune.storage.assignments import Held, Lost, NewAssignment, Overdue, Renewed
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced
from tests.simulation.whole.rows import AssignmentRow, ExecutionRow, UnplacedRow, WorkerRow
from tests.simulation.whole.stand_ins.moments import moment
from tests.simulation.whole.store import NO_KEY_UPDATE, Session, session_of

# Where a worker's row is gone.
INTERVAL_DEFAULT = 10.0


def _all(s: Session) -> list[AssignmentRow]:
    return sorted(s.rows("assignment", AssignmentRow), key=lambda row: row.id)


async def _locked(s: Session, id_: int, mode: str) -> AssignmentRow | None:
    if s.get("assignment", id_, AssignmentRow) is None:
        return None
    await s.lock("assignment", id_, mode)
    return s.get("assignment", id_, AssignmentRow)


async def insert_many(tx: Tx, new: Sequence[NewAssignment]) -> None:
    s = session_of(tx)
    for item in sorted(new, key=lambda item: item.execution_id):
        await s.lock("assignment", item.execution_id)
        assert s.get("assignment", item.execution_id, AssignmentRow) is None, "an assignment is there already"
        row = AssignmentRow(
            id=item.execution_id,
            attempt=item.attempt,
            worker_id=item.worker_id,
            worker_instance=item.worker_instance,
            lease=UUID(int=s.store.number("lease")),
            placed_at=s.now,
        )
        s.insert("assignment", row)


async def insert_started(
    tx: Tx, new: Sequence[tuple[int, int]], *, worker_id: int, instance: UUID, lease_seconds: float
) -> list[Held]:
    placed = [
        NewAssignment(execution_id=id_, attempt=attempt, worker_id=worker_id, worker_instance=instance)
        for id_, attempt in new
    ]
    await insert_many(tx, placed)
    return await start_many(tx, new, worker_id=worker_id, instance=instance, lease_seconds=lease_seconds)


async def delete_many(tx: Tx, execution_ids: Sequence[int]) -> None:
    s = session_of(tx)
    for id_ in sorted(execution_ids):
        if await _locked(s, id_, "update"):
            s.delete("assignment", id_)


async def start_many(
    tx: Tx, claims: Sequence[tuple[int, int]], *, worker_id: int, instance: UUID, lease_seconds: float
) -> list[Held]:
    s = session_of(tx)
    held = []
    for id_, attempt in sorted(claims):
        row = await _locked(s, id_, NO_KEY_UPDATE)
        if row is None or row.attempt != attempt or row.worker_id != worker_id or row.started_at is not None:
            continue
        if row.worker_instance not in (None, instance):
            continue
        execution = s.get("execution", id_, ExecutionRow)
        assert execution is not None
        mine = s.change("assignment", row)
        mine.started_at, mine.worker_instance, mine.lease_until = s.now, instance, s.now + lease_seconds
        mine.deadline = s.now + execution.timeout_seconds
        held.append(Held(execution_id=id_, attempt=attempt, lease=row.lease))
    return held


async def renew_many(tx: Tx, held: Sequence[Held], *, instance: UUID, lease_seconds: float) -> list[Renewed]:
    s = session_of(tx)
    mine: dict[int, AssignmentRow] = {}
    for item in sorted(held, key=lambda item: item.execution_id):
        row = await _locked(s, item.execution_id, NO_KEY_UPDATE)
        if row is None or (row.attempt, row.lease, row.worker_instance) != (item.attempt, item.lease, instance):
            continue
        if row.started_at is not None:
            mine[row.id] = s.change("assignment", row)
            mine[row.id].lease_until = s.now + lease_seconds
    listed = {item.execution_id for item in held}
    ours = {worker.id for worker in s.rows("worker", WorkerRow) if worker.instance == instance}
    others = [
        row
        for row in _all(s)
        if row.worker_id in ours and row.worker_instance in (instance, None) and row.id not in listed
    ]
    return [_renewed(s, row, known=row.id in mine) for row in [*mine.values(), *others]]


def _renewed(s: Session, row: AssignmentRow, *, known: bool) -> Renewed:
    execution = s.get("execution", row.id, ExecutionRow)
    return Renewed(
        execution_id=row.id,
        attempt=row.attempt,
        lease=row.lease,
        known=known,
        started=row.started_at is not None,
        cancel_requested=execution is not None and execution.cancel_requested,
    )


async def lock_held(s: Session, ids: Sequence[int]) -> dict[int, Held]:
    """The leases of those that were started."""
    rows = [row for id_ in sorted(ids) if (row := await _locked(s, id_, "update")) and row.started_at is not None]
    return {row.id: Held(execution_id=row.id, attempt=row.attempt, lease=row.lease) for row in rows}


async def list_lost(tx: Tx, *, limit: int) -> list[Lost]:
    s = session_of(tx)
    lost = []
    for row in _all(s):
        worker = s.get("worker", row.worker_id, WorkerRow)
        interval = worker.heartbeat_interval if worker else INTERVAL_DEFAULT
        cause = _cause(row, worker, now=s.now, interval=interval)
        if cause and s.store.started_at + interval < s.now:
            lost.append(
                Lost(
                    execution_id=row.id,
                    attempt=row.attempt,
                    worker_id=row.worker_id,
                    worker_instance=row.worker_instance,
                    started=row.started_at is not None,
                    cause=cause,
                )
            )
    return lost[:limit]


def _cause(row: AssignmentRow, worker: WorkerRow | None, *, now: float, interval: float) -> str:
    if row.started_at is not None:
        return "lease ran out" if row.lease_until is not None and row.lease_until + interval < now else ""
    if row.worker_instance is None:
        return ""
    if worker is None or worker.instance != row.worker_instance:
        return "worker was restarted"
    if worker.status in {"lost", "inactive"}:
        return f"worker is {worker.status}"
    return "worker stopped sending heartbeats" if worker.last_heartbeat + 3 * interval < now else ""


async def list_unstarted_on(tx: Tx, instance: UUID, *, limit: int) -> list[tuple[int, int]]:
    rows = _all(session_of(tx))
    return [(row.id, row.attempt) for row in rows if row.worker_instance == instance and row.started_at is None][:limit]


async def list_overdue_unstarted(tx: Tx, *, timeout_seconds: float, limit: int) -> list[tuple[int, int]]:
    s = session_of(tx)
    return [
        (row.id, row.attempt)
        for row in _all(s)
        if row.started_at is None
        and row.worker_instance is not None
        and max(row.placed_at, s.store.started_at) < s.now - timeout_seconds
    ][:limit]


async def list_past_deadline(tx: Tx, *, limit: int) -> list[tuple[int, int]]:
    s = session_of(tx)
    overdue = []
    for row in _all(s):
        worker = s.get("worker", row.worker_id, WorkerRow)
        interval = worker.heartbeat_interval if worker else INTERVAL_DEFAULT
        held = row.lease_until is not None and row.lease_until >= s.now
        if row.deadline is not None and row.deadline + interval < s.now and s.store.started_at + interval < s.now:
            overdue += [(row.id, row.attempt)] if held else []
    return overdue[:limit]


async def list_patient(tx: Tx, items: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    s = session_of(tx)
    patient = {}
    for item in items:
        row, execution = s.get("assignment", item[0], AssignmentRow), s.get("execution", item[0], ExecutionRow)
        if row is None or execution is None or row.attempt != item[1] or row.started_at is not None:
            continue
        if execution.ttl_seconds is not None and row.placed_at + execution.ttl_seconds > s.now:
            patient[item] = row.worker_id
    return patient


async def list_past_own_ttl(tx: Tx, *, pinned_ttl_seconds: float | None, limit: int) -> list[Overdue]:
    s = session_of(tx)
    overdue = []
    for row in _all(s):
        execution = s.get("execution", row.id, ExecutionRow)
        if row.started_at is not None or execution is None:
            continue
        ttl = execution.ttl_seconds if execution.ttl_seconds is not None else None
        if ttl is None and execution.pinned:
            ttl = pinned_ttl_seconds
        if ttl is not None and row.placed_at + ttl <= s.now:
            overdue.append(
                Overdue(
                    execution_id=row.id,
                    attempt=row.attempt,
                    worker_id=row.worker_id,
                    died_at=moment(row.placed_at + ttl),
                )
            )
    return overdue[:limit]


# Who waits for room.


async def insert_unplaced(tx: Tx, new: Sequence[NewUnplaced]) -> None:
    s = session_of(tx)
    for item in sorted(new, key=lambda item: item.execution_id):
        if s.get("unplaced", item.execution_id, UnplacedRow) is None:
            row = UnplacedRow(
                id=item.execution_id, pool=item.pool, priority=item.priority, action_id=item.action_id, since=s.now
            )
            s.insert("unplaced", row)


async def delete_unplaced(tx: Tx, execution_ids: Sequence[int]) -> None:
    s = session_of(tx)
    for id_ in execution_ids:
        if s.get("unplaced", id_, UnplacedRow) is not None:
            s.delete("unplaced", id_)


async def list_first(tx: Tx, pool: int, *, quarantined: Sequence[int], limit: int) -> list[Waiting]:
    rows = [
        row
        for row in session_of(tx).rows("unplaced", UnplacedRow)
        if row.pool == pool and row.action_id not in quarantined
    ]
    rows.sort(key=lambda row: (-row.priority, row.id))
    return [
        Waiting(execution_id=row.id, attempt=0, action_id=row.action_id, priority=row.priority) for row in rows[:limit]
    ]


def has_unplaced(s: Session, pool: int, *, quarantined: Sequence[int]) -> bool:
    rows = s.rows("unplaced", UnplacedRow)
    return any(row.pool == pool and row.action_id not in quarantined for row in rows)


async def list_pools(tx: Tx) -> list[int]:
    return sorted({row.pool for row in session_of(tx).rows("unplaced", UnplacedRow)})


async def exists_older_than(tx: Tx, *, seconds: float) -> bool:
    s = session_of(tx)
    return any(row.since < s.now - seconds for row in s.rows("unplaced", UnplacedRow))
