"""Mistakes that are easily made, each as a change of the right code; the simulation has to notice every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import attune.executor.sweeps as sweeping
import attune.operations.change_executions as changing
import attune.operations.finish_executions as finishing
import attune.operations.lines.pass_slots_on as passing_on
import attune.operations.lines.rejoin_lines as rejoining
import attune.operations.lines.resume_line as resuming
import attune.operations.place_newcomers as newcomers
import attune.operations.request_executions as requesting
import attune.operations.unplace_executions as unplacing
import attune.storage.assignments
import attune.storage.availability.probes
import attune.storage.executions
import attune.storage.families
import attune.storage.lines
import attune.storage.outbox
import attune.storage.unplaced
import attune.storage.workers
import attune.transport.rabbitmq.source
import attune.worker.claims as claiming
import attune.worker.heartbeat
from attune.domain import admission
from attune.domain.admission import Circumstances, Entry, Line, LogRow, Op, Step
from attune.domain.execution import Change, Status
from attune.domain.messages import Announcement, Item, Message, MessageType
from attune.domain.unplacing import decide_hand_back
from attune.operations.lines.find_lines import Belonging
from attune.operations.lines.pause_line import lock_line
from attune.operations.start_executions import Claimant, Started, start_executions
from attune.storage.assignments import Held, Lost
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced
from tests.simulation.whole.plan import Aim
from tests.simulation.whole.rows import AssignmentRow, ExecutionRow, WorkerRow
from tests.simulation.whole.stand_ins import assignments, executions, lines, messages, workers
from tests.simulation.whole.store import Session, session_of

storage = attune.storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is replaced by what; of several that hide each other, all."""

    changes: tuple[tuple[Any, str, Any], ...]
    # Where to look for its effect.
    aim: Aim = field(default_factory=Aim)

    def __or__(self, other: Mistake) -> Mistake:
        return Mistake(changes=(*self.changes, *other.changes), aim=self.aim)


def one(thing: object, name: str, wrong: object, aim: Aim = Aim()) -> Mistake:  # noqa: B008 — it never changes
    return Mistake(changes=((thing, name, wrong),), aim=aim)


CALM = Aim(calm=True, interleaving=0.3)
STOPS = Aim(
    kinds=("submit long", "submit long", "submit long", *("stop worker",) * 4), workers_min=2, horizon_seconds=120.0
)
CUTS = Aim(
    kinds=("submit long", "submit long", "submit long", *("cut worker",) * 4), workers_min=2, horizon_seconds=120.0
)
KILLS = Aim(kinds=("kill worker",) * 3)
DRAINS = Aim(kinds=("drain",) * 5, calm=True, interleaving=0.3)
STALE = Aim(kinds=(*("drain",) * 6, *("stop worker",) * 4, *("submit",) * 6), weathers=("slow", "repeated"))
ABSENCE = Aim(kinds=("cordon", "leave", "cordon", "leave"), calm=True)
CROWDS = Aim(kinds=("submit",) * 20, calm=True, interleaving=0.3)
PAUSES = Aim(kinds=("pause",) * 5, calm=True)
DEAF = Aim(kinds=("broker away",) * 3, weathers=("slow",))
DRAINS_AND_KILLS = Aim(kinds=(*("drain",) * 6, *("stop worker",) * 3, *("kill worker",) * 4, *("submit",) * 4))
FORCES = Aim(kinds=("force",) * 5)
WIPES = Aim(kinds=("wipe broker",) * 4)


# Fences


def _holds_any_lease(report: Any, held: Mapping[int, Held]) -> bool:  # noqa: ANN401 — a Report
    return report.held.execution_id in held


async def _start_whatever(tx: Tx, claims: Sequence[Item], *, claimant: Claimant, locked: bool = False) -> list[Started]:
    s = session_of(tx)
    current = [(id_, row.attempt) for id_, _ in claims if (row := s.get("execution", id_, ExecutionRow))]
    asked = dict(claims)
    started = await start_executions(tx, list(dict.fromkeys(current)), claimant=claimant)
    return [
        replace(each, startable=replace(each.startable, attempt=asked[each.startable.execution_id])) for each in started
    ]


def _lost_by_status(statuses: frozenset[str]) -> Callable[..., Any]:
    async def list_lost(tx: Tx, *, limit: int) -> list[Lost]:
        s = session_of(tx)
        lost = await assignments.list_lost(tx, limit=limit)
        known = {each.execution_id for each in lost}
        for row in sorted(s.rows("assignment", AssignmentRow), key=lambda row: row.id):
            worker = s.get("worker", row.worker_id, WorkerRow)
            if worker and worker.status in statuses and row.started_at is not None and row.id not in known:
                lost.append(
                    Lost(
                        execution_id=row.id,
                        attempt=row.attempt,
                        worker_id=row.worker_id,
                        worker_instance=row.worker_instance,
                        started=True,
                        cause="its worker is silent",
                    )
                )
        return lost

    return list_lost


async def _list_lost_unstarted(tx: Tx, *, limit: int) -> list[Lost]:
    return [each for each in await assignments.list_lost(tx, limit=limit) if not each.started]


# Lines


def _admit_past_head(line: Line, heads: list[Entry], outside: Circumstances) -> Step:
    log: list[LogRow] = []
    for entry in heads:
        if outside.is_runnable(entry.execution_id):
            line = replace(line, active=line.active | {entry}, waiting=line.waiting - {entry})
            log.append(admission._log(line, Op.ADMITTED, entry))
    return Step(line=line, log=tuple(log))


def _free_without_limit(line: Line, outside: Circumstances) -> int:
    return 0 if line.paused else outside.admitted_max


def _release_again(line: Line, ended: Any) -> Step:  # noqa: ANN401 — a set of ids
    step = _release(line, ended)
    present = {entry.execution_id for entry in line.active | line.waiting}
    if set(ended) - present and step.line.active:
        other = min(step.line.active, key=lambda entry: entry.seq)
        after = replace(step.line, active=step.line.active - {other})
        return Step(line=after, log=(*step.log, admission._log(after, Op.RELEASED, other)))
    return step


_release = admission.release


async def _admit_by_message(tx: Tx, line_ids: Sequence[int], ended: Sequence[int], *, limit: int) -> Any:  # noqa: ANN401 — Admitted
    s = session_of(tx)
    rows = [row for id_ in ended if (row := s.get("execution", id_, ExecutionRow))]
    theirs = [row.line_id for row in rows if row.line_id is not None]
    return await lines.admit(tx, [*line_ids, *theirs], ended, limit=limit)


def _release_active_only(line: Line, ended: Any) -> Step:  # noqa: ANN401 — a set of ids
    return _release(line, {entry.execution_id for entry in line.active if entry.execution_id in ended})


def _admit_without_looking_again(line: Line, outside: Circumstances) -> Step:
    line = replace(line, held=False)
    heads = sorted(line.waiting, key=lambda entry: entry.place)[: admission._free_slots(line, outside)]
    return admission._activate(line, [entry for entry in heads if outside.is_queued(entry.execution_id)], outside)


async def join_nothing(tx: Tx, candidates: Sequence[object], *, max_queue_length: int) -> list[Belonging]:
    return [Belonging() for _ in candidates]


_enter = rejoining._enter


def _enter_behind(locked: Any, item: Any, key: Any, *, priority: int) -> Any:  # noqa: ANN401 — as the original
    return _enter(locked, replace(item, line_seq=None), key, priority=priority)


async def delete_any_idle(tx: Tx, *, seconds: float, limit: int) -> int:
    s = session_of(tx)
    rows = list(s.store.table("execution").values())
    kept = [(row, row.not_before) for row in rows if row.not_before is not None]
    for row, _ in kept:
        row.not_before = None
    removed = await lines.delete_idle(tx, seconds=seconds, limit=limit)
    for row, not_before in kept:
        row.not_before = not_before
    return removed


# Hints


async def _keep_silently(tx: Tx, rows: Sequence[NewUnplaced]) -> None:
    if rows:
        await assignments.insert_unplaced(tx, rows)


async def _resume_silently(tx: Tx, line_id: int, *, by: object) -> bool:
    line = await lock_line(tx, line_id)
    if line.paused:
        await lines.save_resume(tx, line_id)
    return line.paused


async def none(tx: Tx, *arguments: object, **values: object) -> list[Any]:
    return []


async def nothing(tx: Tx, *arguments: object, **values: object) -> int:
    return 0


async def _nobody(tx: Tx, *arguments: object, **values: object) -> dict[Any, Any]:
    return {}


async def _pong_unheard(tx: Tx, instance: Any) -> bool:  # noqa: ANN401 — a UUID
    s = session_of(tx)
    row = await workers._lock_instance(s, instance)
    if row is not None:
        s.change("worker", row).awaited_since = None
    return False


async def _publish_only(tx: Tx, announcements: Sequence[Announcement]) -> list[Message]:
    told = await messages.insert(tx, announcements)
    for message in told:
        session_of(tx).written.pop(("outbox", message.id))
        session_of(tx).bases.pop(("outbox", message.id))
    return told


_take = attune.transport.rabbitmq.source.RabbitSource.take


async def _take_and_acknowledge(self: Any, tx: Tx, limit: int) -> list[Message]:  # noqa: ANN401 — a RabbitSource
    taken = await _take(self, tx, limit)
    await self.settle(taken)
    return taken


# Placement


async def _candidates_unlocked(s: Session) -> Any:  # noqa: ANN401 — candidates
    return workers.with_loads(s, [row for row in workers._all(s) if workers._may_be_given_work(s, row)])


def _nobody_unplaced(_s: Session, _pool: int, *, quarantined: Sequence[int]) -> bool:
    return False


_pass_slots_on = passing_on.pass_slots_on


async def _pass_on_and_keep_quiet(tx: Tx, ended: Sequence[int], **values: Any) -> list[Started]:  # noqa: ANN401 — as it is called
    mine = await _pass_slots_on(tx, ended, **values)
    tx.withdraw(MessageType.EXECUTION_COMPLETED, MessageType.EXECUTION_COMPLETED)
    return mine


_decide_hand_back = decide_hand_back


def _count_hand_back(scheduled: Any, *, actor: str, reason: str) -> Change:  # noqa: ANN401 — Running
    return replace(_decide_hand_back(scheduled, actor=actor, reason=reason), placements_added=0)


async def _lock_unpinned(tx: Tx, ids: Sequence[int]) -> Any:  # noqa: ANN401 — locked executions
    return {id_: replace(row, pinned=False) for id_, row in (await executions.lock_many(tx, ids)).items()}


async def _list_unstarted_and_pinned(tx: Tx, instance: Any, *, limit: int) -> list[Item]:  # noqa: ANN401 — a UUID
    s = session_of(tx)
    ours = {row.id for row in s.rows("worker", WorkerRow) if row.instance == instance}
    rows = [row for row in s.rows("assignment", AssignmentRow) if row.worker_id in ours and row.started_at is None]
    return [(row.id, row.attempt) for row in rows][:limit]


def _check_no_clock(self: Any) -> float:  # noqa: ANN401 — a Heartbeat
    return float(self._interval)


async def _silent_is_lost(tx: Tx, *, patience_seconds: float) -> list[int]:
    silent = await workers.mark_unresponsive(tx, patience_seconds=patience_seconds)
    await workers._mark(session_of(tx), silent, ("unresponsive",), "lost")
    return silent


LOST_BY_STATUS = one(storage.assignments, "list_lost", _lost_by_status(frozenset({"lost"})), DEAF)
SILENT_IS_LOST = one(storage.availability.probes, "mark_unresponsive", _silent_is_lost)
RELEASE_ACTIVE = one(admission, "release", _release_active_only)
NO_SECOND_LOOK = one(admission, "admit", _admit_without_looking_again)
NO_KEY_SHARE = one(workers, "_lock_candidates", _candidates_unlocked, DRAINS)

# Needs a schedule of its own.
NO_HINT_FOR_WAITING = one(newcomers, "keep_unplaced", _keep_silently)

MISTAKES: Mapping[str, Mistake] = {
    "finish without attempt": one(finishing, "holds_lease", _holds_any_lease, STOPS),
    "start without attempt": one(claiming, "start_executions", _start_whatever, STALE),
    "joining by the consumer": one(
        requesting, "find_lines", join_nothing, Aim(kinds=("submit",) * 8, weathers=("slow",))
    ),
    "past the head": one(admission, "_activate", _admit_past_head, ABSENCE),
    "rejoin with a new seq": one(rejoining, "_enter", _enter_behind),
    "no limit check": one(admission, "_free_slots", _free_without_limit),
    "release counts twice": one(admission, "release", _release_again) | one(storage.lines, "admit", _admit_by_message),
    "assignment kept at the end": one(changing, "WITHOUT_WORKER", frozenset({Status.SCHEDULING, Status.REQUESTED})),
    # Both hints name its pool.
    "no hint on retry": one(finishing, "keep_unplaced", _keep_silently, CALM) | one(finishing, "tell_of_room", nothing),
    "no hint for room left by a retry": one(finishing, "tell_of_room", nothing, CROWDS),
    "ends that leave room are not told": one(claiming, "pass_slots_on", _pass_on_and_keep_quiet, CROWDS),
    "no hint on resume": one(resuming, "resume_line", _resume_silently, PAUSES),
    "held lines are not woken": one(storage.lines, "list_held", none, ABSENCE),
    "an answer to a ping is not heard": one(storage.availability.probes, "save_pong", _pong_unheard, DEAF),
    "no slot inheritance": one(storage.lines, "find_held_by_ancestors", _nobody),
    "placement without key share": NO_KEY_SHARE,
    "newcomers pass who waits": one(workers, "has_unplaced", _nobody_unplaced),
    "hand-backs count": one(unplacing, "decide_hand_back", _count_hand_back, DRAINS_AND_KILLS),
    "pinned work is handed back": one(storage.executions, "lock_many", _lock_unpinned, Aim(kinds=("drain",) * 6))
    | one(storage.assignments, "list_unstarted_on", _list_unstarted_and_pinned),
    "force does not cascade": one(storage.families, "list_live", _nobody, FORCES),
    "acknowledged before the commit": one(attune.transport.rabbitmq.source.RabbitSource, "take", _take_and_acknowledge),
    "no outbox": one(storage.outbox, "insert", _publish_only),
    "no lease sweep": one(storage.assignments, "list_lost", _list_lost_unstarted, KILLS),
    "no state audit": one(sweeping, "heal_states", nothing, WIPES),
    "no own clock": one(attune.worker.heartbeat.Heartbeat, "check_clocks", _check_no_clock, CUTS),
    "silence counts as loss": LOST_BY_STATUS | SILENT_IS_LOST,
    "who waits is not released": RELEASE_ACTIVE,
    "dead heads stay": RELEASE_ACTIVE | NO_SECOND_LOOK,
}

# Each alone is made good by the other.
HIDING: Mapping[str, Sequence[Mistake]] = {
    "silence counts as loss": (LOST_BY_STATUS, SILENT_IS_LOST),
}
