"""Accepts executions: durable, in their lines, and announced in the transaction that makes them so."""

from collections.abc import Sequence

from attune.domain.execution import Status
from attune.domain.messages import MessageType
from attune.operations.access.seal_parameters import seal_parameters
from attune.operations.lines.find_lines import Belonging, find_lines
from attune.operations.lines.join_lines import LockedLines, QueueFull, lock_lines
from attune.operations.lines.plan_births import plan_births
from attune.operations.workers.judge_births import find_unserved
from attune.storage import lines
from attune.storage.births import Birth, Inserted, NewExecution, insert_many
from attune.storage.lines import NewEntry
from attune.storage.tx import Tx

Submission = Sequence[NewExecution]


async def request_executions(
    tx: Tx, submissions: Sequence[Submission], *, max_queue_length: int, no_worker_grace_seconds: float
) -> list[list[Inserted] | QueueFull]:
    """Accept each submission whole, in the order given, or refuse it whole because a line is full.

    What nobody alive could run is recorded as failed, or gets a grace, and joins no line if it failed.
    """
    every = [item for submission in submissions for item in submission]
    actions = sorted({item.action_id for item in every})
    unserved = await find_unserved(tx, actions, grace_seconds=no_worker_grace_seconds)
    places = await find_lines(tx, every, max_queue_length=max_queue_length)
    places = [Belonging() if unserved.fails(item) else place for item, place in zip(every, places, strict=True)]
    locked = await lock_lines(tx, dict(place.line for place in places if place.line is not None))
    rest = iter(places)
    plans = [plan_births(locked, [next(rest) for _ in submission], submission) for submission in submissions]
    accepted = [plan for plan in plans if not isinstance(plan, QueueFull)]
    births = [unserved.judge(birth) for plan in accepted for birth in plan]
    rows = await insert_many(tx, births) if births else []
    inserted = iter(rows)
    answers = [plan if isinstance(plan, QueueFull) else [next(inserted) for _ in plan] for plan in plans]
    await seal_parameters(tx, births, rows)
    if locked.counts:
        await _join(tx, locked, births, rows)
    _announce(tx, births, rows)
    return answers


async def _join(tx: Tx, locked: LockedLines, births: Sequence[Birth], rows: Sequence[Inserted]) -> None:
    joined = locked.joined()
    await lines.save_joined(tx, joined)
    entries = [
        NewEntry(
            execution_id=row.execution_id,
            line_id=birth.line_id,
            action_id=birth.new.action_id,
            seq=birth.line_seq,
            priority=birth.new.priority,
        )
        for birth, row in zip(births, rows, strict=True)
        if birth.line_id is not None and birth.line_seq is not None
    ]
    await lines.insert_entries(tx, entries, op="enq")
    tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(item.line.line_id, 0) for item in joined])


def _announce(tx: Tx, births: Sequence[Birth], rows: Sequence[Inserted]) -> None:
    for birth, row in zip(births, rows, strict=True):
        if birth.status is Status.QUEUED:
            continue
        if birth.failure:
            tx.ended[birth.new.action_ref, birth.status, birth.failure.code] += 1
        told = MessageType.EXECUTION_COMPLETED if birth.failure else MessageType.EXECUTION_REQUESTED
        tx.announce(told, told, [(row.execution_id, 0)], delay_seconds=row.delay_seconds)
