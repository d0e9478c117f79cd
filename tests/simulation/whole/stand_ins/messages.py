"""In the place of `storage.outbox`, `storage.dead_letters` and of what only people read."""

from __future__ import annotations

from collections.abc import Sequence

from attune.domain.endings.dead_letters import Outcome
from attune.domain.messages import DEAD_TOPIC, Announcement, Message
from attune.domain.retry import Ending
from attune.storage.access.audit_log import AuditEntry
from attune.storage.dead_letters import Buried
from attune.storage.outbox import DOUBLINGS_MAX
from attune.storage.tx import Tx
from tests.simulation.whole.rows import AssignmentRow, DeadLetterRow, OutboxRow
from tests.simulation.whole.stand_ins.moments import moment, seconds_of
from tests.simulation.whole.store import Session, session_of


def message_of(row: OutboxRow) -> Message:
    return Message(
        id=row.id,
        topic=row.topic,
        type=row.type,
        items=row.items,
        deliveries=row.deliveries,
        created=moment(row.created),
        not_before=moment(row.not_before),
        deaths=row.deaths,
    )


async def insert(tx: Tx, announcements: Sequence[Announcement]) -> list[Message]:
    s = session_of(tx)
    rows = [
        OutboxRow(
            id=s.store.number("outbox"),
            topic=each.topic,
            type=each.type,
            items=each.items,
            created=s.now,
            not_before=s.now + each.delay_seconds,
        )
        for each in announcements
    ]
    for row in rows:
        s.insert("outbox", row)
    return [message_of(row) for row in rows]


def _free(s: Session) -> list[OutboxRow]:
    """Those that nobody else holds, the oldest first."""
    rows = [row for row in s.rows("outbox", OutboxRow) if ("outbox", row.id) not in s.store.locks]
    return sorted(rows, key=lambda row: (row.not_before, row.id))


async def take(tx: Tx, topic: str, *, limit: int, suspect_seconds: float) -> list[Message]:
    s = session_of(tx)
    fresh = [
        row
        for row in _free(s)
        if row.topic == topic and s.now - suspect_seconds < row.not_before <= s.now and row.deliveries == 0
    ][:limit]
    for row in fresh:
        await _hold(s, row)
        s.delete("outbox", row.id)
    return [message_of(row) for row in fresh]


async def _hold(s: Session, row: OutboxRow) -> None:
    """What one statement takes it takes at once."""
    pause, s.store.interleaving = s.store.interleaving, 0.0
    hold, s.store.hold = s.store.hold, None
    await s.lock("outbox", row.id)
    s.store.interleaving, s.store.hold = pause, hold


async def count_suspect(tx: Tx, topic: str, *, suspect_seconds: float, backoff_seconds: float) -> Message | None:
    s = session_of(tx)
    for row in _free(s):
        old = row.not_before <= s.now - suspect_seconds
        if row.topic != topic or row.not_before > s.now or not (row.deliveries or old):
            continue
        await _hold(s, row)
        mine = s.change("outbox", row)
        mine.not_before = s.now + backoff_seconds * 2.0 ** min(row.deliveries, DOUBLINGS_MAX)
        mine.deliveries += 1
        return message_of(mine)
    return None


async def insert_counted(tx: Tx, message: Message, *, delay_seconds: float) -> Message:
    s = session_of(tx)
    s.settled.add(message.id)
    row = OutboxRow(
        id=s.store.number("outbox"),
        topic=message.topic,
        type=message.type,
        items=message.items,
        created=seconds_of(message.created),
        not_before=s.now + delay_seconds,
        deliveries=message.deliveries + 1,
        deaths=message.deaths,
    )
    s.insert("outbox", row)
    return message_of(row)


async def count_failed(tx: Tx, message_id: int, *, delay_seconds: float) -> bool:
    s = session_of(tx)
    row = s.get("outbox", message_id, OutboxRow)
    if row is None:
        return False
    await s.lock("outbox", message_id)
    mine = s.change("outbox", row)
    mine.deliveries, mine.not_before = mine.deliveries + 1, s.now + delay_seconds
    return True


async def uncount(tx: Tx, message_id: int, *, delay_seconds: float) -> None:
    s = session_of(tx)
    await s.lock("outbox", message_id)
    row = s.get("outbox", message_id, OutboxRow)
    if row is not None and row.deliveries:
        mine = s.change("outbox", row)
        mine.deliveries, mine.not_before = mine.deliveries - 1, s.now + delay_seconds


async def put_off(tx: Tx, message_ids: Sequence[int], *, delay_seconds: float) -> None:
    s = session_of(tx)
    for id_ in message_ids:
        await s.lock("outbox", id_)
        if (row := s.get("outbox", id_, OutboxRow)) is not None:
            s.change("outbox", row).not_before = s.now + delay_seconds


async def delete(tx: Tx, message_id: int) -> bool:
    s = session_of(tx)
    row = s.get("outbox", message_id, OutboxRow)
    if row is None or ("outbox", message_id) in s.store.locks:
        return False
    await _hold(s, row)
    s.delete("outbox", message_id)
    return True


async def delete_many(tx: Tx, message_ids: Sequence[int]) -> None:
    s = session_of(tx)
    for id_ in sorted(message_ids):
        if (row := s.get("outbox", id_, OutboxRow)) is not None:
            await s.lock("outbox", row.id)
            s.delete("outbox", id_)


async def claim_overdue(tx: Tx, *, limit: int, overdue_seconds: float, claim_seconds: float) -> list[Message]:
    s = session_of(tx)
    due = [
        row for row in _free(s) if row.not_before <= s.now - (0.0 if row.not_before > row.created else overdue_seconds)
    ][:limit]
    claimed = []
    for row in due:
        await _hold(s, row)
        mine = s.change("outbox", row)
        mine.not_before = s.now + claim_seconds
        claimed.append(message_of(mine))
    return claimed


async def expire_dispatches(tx: Tx, *, ttl_seconds: float, limit: int) -> list[Message]:
    s = session_of(tx)
    old = [
        row
        for row in _free(s)
        if row.topic.startswith("execution.dispatch.worker.") and row.created <= s.now - ttl_seconds
    ][:limit]
    moved = []
    for row in old:
        await _hold(s, row)
        mine = s.change("outbox", row)
        mine.deaths = (*row.deaths, f"{row.topic} expired at {s.now:g}")
        mine.topic, mine.not_before, mine.created, mine.deliveries = DEAD_TOPIC, s.now, s.now, 0
        moved.append(message_of(mine))
    return moved


async def insert_dead_letter(tx: Tx, message: Message, *, reason: str, error: str) -> int:
    s = session_of(tx)
    s.settled.add(message.id)
    row = DeadLetterRow(
        id=s.store.number("dead_letter"),
        worker_instance=None,
        parked_at=s.now,
        outcome=None,
        reason=f"{reason}: {message.type} {message.items} {error}",
    )
    s.insert("dead_letter", row)
    return row.id


async def insert_buried(tx: Tx, buried: Sequence[Buried], *, by: str) -> None:
    s = session_of(tx)
    for each in buried:
        assignment = s.get("assignment", each.expiry.item[0], AssignmentRow)
        current = assignment is not None and assignment.attempt == each.expiry.item[1]
        blamed = assignment.worker_instance if assignment and current and each.outcome != Outcome.NO_EFFECT else None
        row = DeadLetterRow(
            id=s.store.number("dead_letter"),
            worker_instance=blamed,
            parked_at=s.now,
            outcome=each.outcome,
        )
        s.insert("dead_letter", row)


async def insert_late(tx: Tx, late: Sequence[tuple[int, int, int, Ending]]) -> None:
    """For people; no decision rests on it."""


async def insert_audit(tx: Tx, entries: Sequence[AuditEntry]) -> None:
    """For people; no decision rests on it."""
