"""In the place of `storage.workers`, `storage.availability` and `storage.placing`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from attune.domain.definitions import Isolation
from attune.domain.endings.dead_letters import AVOIDED_SECONDS
from attune.domain.placement import STALE_INTERVALS, Candidate, Requirements, can_run
from attune.storage.availability.probes import REPEAT_PERIODS
from attune.storage.availability.serving import Stranded
from attune.storage.availability.steering import Steered
from attune.storage.placing import OpenPool
from attune.storage.tx import Tx
from attune.storage.workers import Beat, Registration
from tests.simulation.whole.rows import ActionRow, AssignmentRow, DeadLetterRow, ExecutionRow, UnplacedRow, WorkerRow
from tests.simulation.whole.stand_ins.assignments import has_unplaced
from tests.simulation.whole.store import KEY_SHARE, NO_KEY_UPDATE, UPDATE, Session, session_of


def _all(s: Session) -> list[WorkerRow]:
    return sorted(s.rows("worker", WorkerRow), key=lambda row: row.id)


async def _lock_instance(s: Session, instance: UUID, mode: str = NO_KEY_UPDATE) -> WorkerRow | None:
    for row in _all(s):
        if row.instance == instance:
            await s.lock("worker", row.id, mode)
            again = s.get("worker", row.id, WorkerRow)
            return again if again is not None and again.instance == instance else None
    return None


def _heard(s: Session, row: WorkerRow) -> bool:
    return row.last_heartbeat + STALE_INTERVALS * row.heartbeat_interval >= s.now


async def register(tx: Tx, worker: Registration) -> int:
    s = session_of(tx)
    known = next((row for row in _all(s) if row.name == worker.name), None)
    id_ = known.id if known else s.store.number("worker")
    await s.lock("worker", id_, NO_KEY_UPDATE)
    known = s.get("worker", id_, WorkerRow)
    row = WorkerRow(
        id=id_,
        name=worker.name,
        instance=worker.instance,
        runtimes=frozenset(worker.runtimes),
        labels=dict(worker.labels),
        capacity=worker.capacity,
        heartbeat_interval=worker.heartbeat_interval,
        last_heartbeat=s.now,
        pid=worker.pid,
        cordoned=known.cordoned if known else False,
    )
    s.insert("worker", row)
    return id_


async def beat(tx: Tx, instance: UUID) -> Beat:
    s = session_of(tx)
    row = await _lock_instance(s, instance)
    if row is None:
        return Beat(status=None, revived=False)
    mine = s.change("worker", row)
    mine.last_heartbeat = s.now
    was_lost = row.status == "lost"
    if was_lost:
        mine.status = "draining" if row.leaving else "active"
    return Beat(status=mine.status, revived=was_lost and mine.status == "active")


async def change_status(tx: Tx, instance: UUID, status: str, *, leaving: bool) -> bool:
    s = session_of(tx)
    row = await _lock_instance(s, instance, UPDATE)
    if row is None:
        return False
    mine = s.change("worker", row)
    mine.status, mine.leaving = status, leaving
    return True


async def _mark(s: Session, ids: Sequence[int], statuses: Sequence[str], status: str) -> list[int]:
    marked = []
    for id_ in ids:
        await s.lock("worker", id_, NO_KEY_UPDATE)
        row = s.get("worker", id_, WorkerRow)
        if row is not None and row.status in statuses:
            s.change("worker", row).status = status
            marked.append(id_)
    return marked


async def mark_lost_by_pid(tx: Tx, name: str, pid: int) -> bool:
    s = session_of(tx)
    ids = [row.id for row in _all(s) if row.name == name and row.pid == pid]
    return bool(await _mark(s, ids, ("active", "unresponsive", "draining"), "lost"))


def _is_stale(s: Session, row: WorkerRow) -> bool:
    heard = max(row.last_heartbeat, s.store.started_at)
    return heard + STALE_INTERVALS * row.heartbeat_interval < s.now


async def mark_stale_lost(tx: Tx) -> list[int]:
    s = session_of(tx)
    lost = []
    for row in _all(s):
        if row.status not in {"active", "unresponsive", "draining"} or not _is_stale(s, row):
            continue
        await s.lock("worker", row.id, NO_KEY_UPDATE)
        again = s.get("worker", row.id, WorkerRow)
        # A heartbeat may have come meanwhile.
        if again is not None and again.status in {"active", "unresponsive", "draining"} and _is_stale(s, again):
            s.change("worker", again).status = "lost"
            lost.append(row.id)
    return lost


async def set_full(tx: Tx, instance: UUID, *, full: bool) -> None:
    s = session_of(tx)
    row = await _lock_instance(s, instance)
    if row is not None and row.marked_full != full:
        s.change("worker", row).marked_full = full


def _may_be_given_work(s: Session, row: WorkerRow) -> bool:
    return row.status == "active" and not row.cordoned and not row.marked_full and _heard(s, row)


async def open_pool(tx: Tx, pool: int) -> OpenPool | None:
    s = session_of(tx)
    await s.lock("pool", pool)
    actions = [action for action in s.rows("action", ActionRow) if action.pool == pool]
    if not actions:
        return None
    quarantined = [action.id for action in actions if action.quarantined_at is not None]
    candidates = await _lock_candidates(s)
    return OpenPool(
        requirements=actions[0].requirements,
        quarantined=quarantined,
        awaited=has_unplaced(s, pool, quarantined=quarantined),
        candidates=candidates,
    )


async def _lock_candidates(s: Session) -> list[Candidate]:
    found = []
    for row in _all(s):
        if not _may_be_given_work(s, row):
            continue
        await s.lock("worker", row.id, KEY_SHARE)
        again = s.get("worker", row.id, WorkerRow)
        if again is not None and _may_be_given_work(s, again):
            found.append(again)
    return with_loads(s, found)


def with_loads(s: Session, found: Sequence[WorkerRow]) -> list[Candidate]:
    """Those found, with how much they have to do."""
    loads: dict[int, int] = {}
    for assignment in s.rows("assignment", AssignmentRow):
        loads[assignment.worker_id] = loads.get(assignment.worker_id, 0) + 1
    return [_candidate(s, row, loads.get(row.id, 0)) for row in found]


def _candidate(s: Session, row: WorkerRow, load: int) -> Candidate:
    letters = s.rows("dead_letter", DeadLetterRow)
    avoided = any(each.worker_instance == row.instance and each.parked_at > s.now - AVOIDED_SECONDS for each in letters)
    return Candidate(
        worker_id=row.id,
        instance=str(row.instance),
        runtimes=row.runtimes,
        labels=row.labels,
        isolation=Isolation.NONE,
        capacity=row.capacity,
        load=load,
        avoided=avoided,
    )


# Who is alive, for acceptance, admission and failing work.


def _living(s: Session, row: WorkerRow) -> bool:
    heard = row.last_heartbeat
    if row.status == "unresponsive" and row.awaited_since is not None:
        heard = min(heard, row.awaited_since)
    elif row.status not in {"lost", "unresponsive"}:
        heard = max(heard, s.store.started_at)
    return row.status != "inactive" and not row.leaving and heard + STALE_INTERVALS * row.heartbeat_interval >= s.now


def _can_run(row: WorkerRow, action: ActionRow) -> bool:
    candidate = Candidate(
        worker_id=row.id,
        instance="",
        runtimes=row.runtimes,
        labels=row.labels,
        isolation=Isolation.NONE,
        capacity=row.capacity,
        load=0,
    )
    return can_run(candidate, action.requirements)


def has_candidate(s: Session, action_id: int) -> bool:
    action = s.get("action", action_id, ActionRow)
    if action is None or action.quarantined_at is not None:
        return False
    return any(
        row.status == "active" and not row.cordoned and _heard(s, row) and _can_run(row, action) for row in _all(s)
    )


def _is_served(s: Session, action_id: int) -> bool:
    action = s.get("action", action_id, ActionRow)
    return action is not None and any(_living(s, row) and not row.cordoned and _can_run(row, action) for row in _all(s))


async def list_unserved(tx: Tx, action_ids: Sequence[int]) -> dict[int, Requirements]:
    s = session_of(tx)
    actions = [s.get("action", id_, ActionRow) for id_ in action_ids if not _is_served(s, id_)]
    return {action.id: action.requirements for action in actions if action is not None}


async def list_living(tx: Tx) -> list[Candidate]:
    s = session_of(tx)
    return [_candidate(s, row, 0) for row in _all(s) if _living(s, row)]


async def list_unserved_executions(tx: Tx, execution_ids: Sequence[int]) -> list[int]:
    s = session_of(tx)
    rows = [row for id_ in execution_ids if (row := s.get("execution", id_, ExecutionRow))]
    return [row.id for row in rows if not _is_served(s, row.action)]


async def list_stranded(tx: Tx, *, timeout_seconds: float, limit: int) -> list[Stranded]:
    s = session_of(tx)
    waiting = {
        row.id: row.action_id
        for row in s.rows("unplaced", UnplacedRow)
        if _waits_since(s, row) < s.now - timeout_seconds
    }
    for row in s.rows("execution", ExecutionRow):
        if row.worker_by is not None and row.worker_by < s.now and row.ended_at is None and row.attempt == 0:
            waiting[row.id] = row.action
    served = {action_id: _is_served(s, action_id) for action_id in set(waiting.values())}
    return [
        Stranded(execution_id=id_, action_id=action_id)
        for id_, action_id in sorted(waiting.items())
        if not served[action_id]
    ][:limit]


def _waits_since(s: Session, row: UnplacedRow) -> float:
    """While its action is quarantined, its time does not run."""
    action = s.get("action", row.action_id, ActionRow)
    if action is None or action.quarantined_at is not None:
        return s.now
    return row.since if action.released_at is None else max(row.since, action.released_at)


async def settle_served(tx: Tx, *, limit: int) -> None:
    s = session_of(tx)
    for row in [row for row in s.rows("execution", ExecutionRow) if row.worker_by is not None][:limit]:
        over = row.ended_at is not None or row.attempt > 0 or _is_served(s, row.action)
        # Passed over if somebody holds it, as SKIP LOCKED does.
        if row.worker_by is not None and row.worker_by < s.now and over and ("execution", row.id) not in s.store.locks:
            await s.lock("execution", row.id, NO_KEY_UPDATE)
            again = s.get("execution", row.id, ExecutionRow)
            if again is not None:
                s.change("execution", again).worker_by = None


# Pings.


async def mark_unresponsive(tx: Tx, *, patience_seconds: float) -> list[int]:
    s = session_of(tx)
    before = s.now - patience_seconds
    silent = [
        row.id
        for row in _all(s)
        if row.status == "active" and row.awaited_since is not None and row.awaited_since < before
    ]
    return await _mark(s, silent if s.store.started_at < before else [], ("active",), "unresponsive")


async def take_due(tx: Tx, *, period_seconds: float) -> list[int]:
    s = session_of(tx)
    due = []
    for row in _all(s):
        period = period_seconds * (1 if row.awaited_since is None else REPEAT_PERIODS)
        if row.status not in {"active", "unresponsive", "draining"} or not _heard(s, row):
            continue
        if (row.pinged_at is not None and row.pinged_at >= s.now - period) or _is_held(s, row.id):
            continue
        await s.lock("worker", row.id, NO_KEY_UPDATE)
        mine = s.change("worker", s.get("worker", row.id, WorkerRow) or row)
        mine.pinged_at = s.now
        mine.awaited_since = s.now if mine.awaited_since is None else mine.awaited_since
        due.append(row.id)
    return due


def _is_held(s: Session, worker_id: int) -> bool:
    lock = s.store.locks.get(("worker", worker_id))
    return lock is not None and bool(lock.stands_in_the_way(s, NO_KEY_UPDATE))


async def save_pong(tx: Tx, instance: UUID) -> bool:
    s = session_of(tx)
    row = await _lock_instance(s, instance)
    if row is None:
        return False
    mine = s.change("worker", row)
    mine.awaited_since = None
    silent = row.status == "unresponsive"
    mine.status = "active" if silent else row.status
    return silent


# Quarantine.


async def add_losses(tx: Tx, losses: Sequence[tuple[int, UUID]], *, losses_max: int) -> list[int]:
    s = session_of(tx)
    new = []
    for action_id in sorted({action_id for action_id, _ in losses}):
        await s.lock("action", action_id, NO_KEY_UPDATE)
        action = s.get("action", action_id, ActionRow)
        assert action is not None
        mine = s.change("action", action)
        mine.lost_workers = action.lost_workers | {instance for each, instance in losses if each == action_id}
        if action.quarantined_at is None and len(mine.lost_workers) >= losses_max:
            mine.quarantined_at = s.now
            new.append(action_id)
    return new


async def forget_losses(tx: Tx, action_ids: Sequence[int]) -> None:
    s = session_of(tx)
    for action_id in sorted(action_ids):
        await s.lock("action", action_id, NO_KEY_UPDATE)
        action = s.get("action", action_id, ActionRow)
        if action is not None and action.lost_workers and action.quarantined_at is None:
            s.change("action", action).lost_workers = frozenset()


async def release(tx: Tx, ref: str) -> bool | None:
    s = session_of(tx)
    action = next((each for each in s.rows("action", ActionRow) if each.ref == ref), None)
    if action is None:
        return None
    await s.lock("action", action.id, NO_KEY_UPDATE)
    mine = s.change("action", s.get("action", action.id, ActionRow) or action)
    was_held = mine.quarantined_at is not None
    mine.quarantined_at, mine.lost_workers = None, frozenset()
    mine.released_at = s.now if was_held else mine.released_at
    return was_held


# By hand.


async def lock(tx: Tx, worker_id: int) -> Steered | None:
    s = session_of(tx)
    await s.lock("worker", worker_id, UPDATE)
    row = s.get("worker", worker_id, WorkerRow)
    if row is None:
        return None
    return Steered(
        worker_id=row.id,
        name=row.name,
        instance=row.instance,
        status=row.status,
        cordoned=row.cordoned,
        leaving=row.leaving,
    )


async def save(tx: Tx, worker_id: int, *, status: str, cordoned: bool) -> None:
    s = session_of(tx)
    row = s.get("worker", worker_id, WorkerRow)
    assert row is not None
    mine = s.change("worker", row)
    mine.status, mine.cordoned = status, cordoned
