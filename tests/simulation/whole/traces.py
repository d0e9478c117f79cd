"""Schedules that broke earlier drafts of the protocol, each with the rule that excludes it now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import attune.storage.assignments
import attune.storage.availability.serving
import attune.storage.executions
import attune.storage.lines
import attune.worker.perform
from attune.domain.definitions import RetryPolicy
from attune.domain.execution import Status
from attune.domain.messages import Message, MessageType
from attune.operations.cancel_execution import cancel_execution
from attune.operations.start_executions import Started
from attune.operations.workers.cordon_worker import cordon_worker
from attune.storage.tx import Commit
from attune.worker.attempts import Attempts, Entry
from attune.worker.attempts import Stage as Step
from attune.worker.claims import Claims
from tests.simulation.whole import events, planted
from tests.simulation.whole.plan import IDEMPOTENT, LINED, PARENT, PLAIN, RETRIED, ZONED, Event
from tests.simulation.whole.planted import MISTAKES, Mistake, one
from tests.simulation.whole.rows import AssignmentRow
from tests.simulation.whole.stage import Stage
from tests.simulation.whole.store import Session, session_of
from tests.simulation.whole.virtual import sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What happens, which rule is switched off, and what is then seen."""

    play: Callable[[], Stage]
    without: Mistake
    seen: str


def _probed_out_while_it_runs() -> Stage:
    stage = Stage(1, 1, troubled=True)
    id_ = stage.submit(IDEMPOTENT, seconds=90.0)
    stage.until_running(id_, 1)
    deaf = stage.deafen(stage.worker(stage.row(id_).worker or 0))
    stage.run(60.0)
    stage.world.around.broker.consumers.append(deaf)
    stage.rest()
    return stage


def _probed_out_and_back() -> Stage:
    stage = Stage(1, troubled=True)
    deaf = stage.deafen(stage.worker(1))
    stage.until(lambda: stage.world.store.table("worker")[1].status == "unresponsive")
    stage.submit(IDEMPOTENT)
    stage.run(1.0)
    stage.world.around.broker.consumers.append(deaf)
    stage.rest()
    return stage


def _repeated_while_unsettled() -> Stage:
    stage = Stage(4, external=True, troubled=True)
    broker, worker = stage.world.around.broker, stage.worker(1)
    sent: list[Message] = []
    enqueue, commit = broker._enqueue, worker.database.commit
    lost: list[int] = []

    def lose_answer(session: Session) -> None:
        commit(session)
        if lost and lost[0] in session.settled:
            lost.clear()
            raise ConnectionResetError("no answer")

    def see(message: Message) -> None:
        sent.append(message)
        enqueue(message)

    broker._enqueue = see  # type: ignore[method-assign]  # a witness
    worker.database.commit = lose_answer  # type: ignore[method-assign]  # once
    id_ = stage.submit(IDEMPOTENT, seconds=20.0)
    stage.until_status(id_, Status.RUNNING)
    dispatch = next(message for message in sent if message.type == MessageType.EXECUTION_DISPATCHED)
    lost.append(dispatch.id)
    enqueue(dispatch)
    stage.rest()
    return stage


def _claimed_and_nobody_renews() -> Stage:
    stage = Stage(1, 1, troubled=True)
    claims = [Commit.DONE]

    def lose(worker: Any) -> None:  # noqa: ANN401 — a SimulatedWorker
        commit = worker.database.commit

        def committed(session: Any) -> None:  # noqa: ANN401 — a Session
            commit(session)
            if claims and any(move.after is Status.RUNNING for move in session.history):
                claims.clear()
                worker.process.cut = True
                raise ConnectionResetError("no answer")

        worker.database.commit = committed

    lose(stage.worker(1))
    lose(stage.worker(2))
    id_ = stage.submit(IDEMPOTENT, seconds=60.0)
    stage.until_status(id_, Status.RUNNING)
    worker = stage.worker(stage.row(id_).worker or 0)
    stage.run(37.0)

    async def sleeps() -> None:
        await sleep(8.0)

    worker.heartbeat.beat = sleeps  # type: ignore[method-assign]  # its heartbeat hangs for a while
    worker.process.cut = False
    stage.run(4.0)
    del worker.heartbeat.beat
    stage.rest()
    return stage


def _stopped_before_the_spawn() -> Stage:
    stage = Stage(1, 1, troubled=True)
    id_ = stage.submit(IDEMPOTENT, seconds=90.0)
    stage.until_status(id_, Status.RUNNING)
    worker = stage.worker(stage.row(id_).worker or 0)
    stage.world.stop(worker.process)
    stage.until_running(id_, 2)
    stage.world.go_on(worker.process)
    stage.run(1.0)
    stage.rest()
    return stage


def _room_appears_unseen() -> Stage:
    stage = Stage(1, executors=2)
    first = stage.submit(IDEMPOTENT, seconds=3.0)
    stage.until_running(first, 1)
    second = stage.submit(IDEMPOTENT)
    let_go = stage.hold("before commit", lambda session: ("unplaced", second) in session.written)
    stage.until(stage.is_held)
    stage.until_status(first, Status.SUCCEEDED)
    stage.run(1.0)
    let_go()
    stage.rest()
    return stage


def _worker_returns_to_a_held_line() -> Stage:
    stage = Stage(1)
    stage.world.do(lambda tx: cordon_worker(tx, 1, by=events.BY))
    stage.run(1.0)
    stage.submit(ZONED)
    stage.until(lambda: any(line.held for line in stage.world.store.table("line").values()))
    events.uncordon(stage.world, 1)
    stage.rest()
    return stage


def _retry_leaves_room() -> Stage:
    stage = Stage(1)
    action = stage.world.store.table("action")[RETRIED]
    action.retry = RetryPolicy(max_attempts=2, delay_seconds=200.0)
    first = stage.submit(RETRIED, seconds=2.0, exits=(1, 0))
    stage.until_running(first, 1)
    stage.submit(IDEMPOTENT)
    stage.rest()
    return stage


def _retry_leaves_room_to_another_kind() -> Stage:
    stage = Stage(1, 1, zones=1)
    first = stage.submit(PLAIN, seconds=3.0, exits=(1, 0))
    stage.until_running(first, 1)
    others = stage.row(first).worker != 1
    second = stage.submit(PLAIN, seconds=8.0 if others else 1.0, exits=(1, 0))
    stage.until_running(second, 1)
    stage.submit(ZONED)
    stage.rest()
    return stage


def _the_end_of_a_slot_owner_is_lost() -> Stage:
    stage = Stage(1, troubled=True)
    world, worker = stage.world, stage.worker(1)
    world.stop(worker.process)
    first = stage.submit(RETRIED)
    stage.until_status(first, Status.SCHEDULED)
    world.around.broker.weather.lost = 1.0
    world.do(lambda tx: cancel_execution(tx, first, actor="person"))
    stage.until_status(first, Status.CANCELLED)
    world.store.table("outbox").clear()
    world.around.broker.weather.lost = 0.0
    world.go_on(worker.process)
    stage.submit(RETRIED)
    stage.rest()
    return stage


def _drained_again_and_again() -> Stage:
    stage = Stage(1, troubled=True)
    worker = stage.worker(1)
    stage.world.stop(worker.process)
    id_ = stage.submit(IDEMPOTENT)
    for _ in range(3):
        stage.until_status(id_, Status.SCHEDULED)
        events.happen(stage.world, Event(at=0.0, kind="drain", how=10**6))
        stage.until_status(id_, Status.SCHEDULING)
        events.uncordon(stage.world, 1)
    stage.until_status(id_, Status.SCHEDULED)
    stage.world.kill_worker(worker, told=True)
    stage.until_status(id_, Status.SCHEDULING, Status.FAILED)
    stage.world.start_worker(worker.plan)
    stage.rest()
    return stage


def _next_in_line_meets_an_older_one() -> Stage:
    stage = Stage(1)
    first = stage.submit(RETRIED, seconds=3.0)
    stage.submit(RETRIED)
    stage.until_running(first, 1)
    stage.submit(IDEMPOTENT)
    stage.rest()
    return stage


def _line_goes_while_a_retry_is_outside() -> Stage:
    stage = Stage(2)
    store = stage.world.store
    store.table("action")[RETRIED].retry = RetryPolicy(max_attempts=2, delay_seconds=2000.0, max_delay_seconds=2000.0)
    first = stage.submit(RETRIED, exits=(1, 0))
    stage.until_status(first, Status.REQUESTED)
    due = store.clock + 450.0
    store.table("execution")[first].not_before = due
    for row in store.table("outbox").values():
        if row.type == MessageType.EXECUTION_REQUESTED:
            row.not_before = due
    stage.run(440.0)
    stage.submit(RETRIED, seconds=30.0)
    stage.submit(RETRIED)
    stage.rest()
    return stage


def _pinned_to_a_drained_worker() -> Stage:
    stage = Stage(1, 1)
    stage.world.stop(stage.worker(1).process)
    id_ = stage.submit(IDEMPOTENT, pinned_to=1)
    stage.until_status(id_, Status.SCHEDULED)
    events.happen(stage.world, Event(at=0.0, kind="drain", how=10**6))
    stage.run(5.0)
    stage.world.go_on(stage.worker(1).process)
    events.uncordon(stage.world, 1)
    stage.rest()
    return stage


def _the_only_worker_is_gone() -> Stage:
    stage = Stage(1, troubled=True)
    first = stage.submit(LINED, seconds=50.0)
    stage.until_running(first, 1)
    stage.submit(LINED)
    stage.world.kill_worker(stage.worker(1), told=False)
    stage.run(2500.0)
    stage.judge_ended()
    return stage


def _parent_ends_by_force() -> Stage:
    stage = Stage(3)
    parent = stage.submit(PARENT, seconds=5.0, parameters={"children": 2})
    stage.until(lambda: any(row.inherits == parent for row in stage.world.store.table("execution").values()))
    stage.run(0.5)
    stage.world.do(lambda tx: cancel_execution(tx, parent, actor="person", force=True))
    stage.rest()
    return stage


# Rules that are parts of a worker, switched off.


def _enter_again(self: Attempts, key: Any, stage: Step) -> Entry:  # noqa: ANN401 — an attempt
    entry = self._entries[key] = Entry(key=key, stage=stage)
    self._counts[stage] += 1
    return entry


async def _settle_by_looking(self: Any) -> None:  # noqa: ANN401 — Claims
    """Running, and ours: a plain look, by whose answer nothing is renewed."""
    unsettled = self._attempts.in_stage(Step.UNSETTLED)
    async with self._database.transaction() as tx:
        rows = {
            (row.id, row.attempt): row
            for row in session_of(tx).rows("assignment", AssignmentRow)
            if row.worker_instance == self._claimant.instance and row.started_at is not None
        }
        known = {id_: await attune.storage.executions.list_startable(tx, [id_]) for id_, _ in rows}
    for entry in unsettled:
        if entry.key in rows and known[entry.key[0]]:
            started = Started(startable=known[entry.key[0]][0], lease=rows[entry.key].lease)
            self._run(entry, started, tx.began_at)
        else:
            self._attempts.drop(entry)


_act = Claims._act


def _act_hopefully(self: Any, batch: Any, began_at: float, commit: Commit) -> None:  # noqa: ANN401 — Claims, a batch
    if commit is Commit.UNKNOWN:
        for entry in batch.claimed:
            self._attempts.move(entry, Step.UNSETTLED)
        self.wake()
        return
    _act(self, batch, began_at, commit)


def _no_clock(_entry: Entry) -> Callable[[], None]:
    return lambda: None


LOOKING = one(Claims, "settle", _settle_by_looking) | one(Claims, "_act", _act_hopefully)
NO_TABLE = one(Attempts, "__contains__", lambda _self, _key: False) | one(Attempts, "enter", _enter_again)

TRACES: Mapping[str, Trace] = {
    "1 reclaimed though its lease is good": Trace(
        play=_probed_out_while_it_runs, without=MISTAKES["silence counts as loss"], seen="no_two_live_scripts"
    ),
    "2 never a candidate again": Trace(
        play=_probed_out_and_back, without=MISTAKES["an answer to a ping is not heard"], seen="everything_can_end"
    ),
    "3 a duplicate reads that it is ours": Trace(
        play=_repeated_while_unsettled, without=NO_TABLE | LOOKING, seen="one_start_per_attempt"
    ),
    "4 a plain look is no renewal": Trace(play=_claimed_and_nobody_renews, without=LOOKING, seen="no_two_live_scripts"),
    "5 stopped between claim and spawn": Trace(
        play=_stopped_before_the_spawn,
        without=one(attune.worker.perform, "_clock_of", _no_clock),
        seen="no_two_live_scripts",
    ),
    "6 room appears before the wait is committed": Trace(
        play=_room_appears_unseen,
        without=planted.NO_HINT_FOR_WAITING,
        seen="nobody_waits_beside_room",
    ),
    "7 a worker returns to a held line": Trace(
        play=_worker_returns_to_a_held_line, without=MISTAKES["held lines are not woken"], seen="nets_are_idle"
    ),
    "8 a delayed retry leaves room": Trace(
        play=_retry_leaves_room,
        without=MISTAKES["no hint for room left by a retry"],
        seen="nobody_waits_beside_room",
    ),
    "15 a retry leaves room to another kind": Trace(
        play=_retry_leaves_room_to_another_kind,
        without=MISTAKES["no hint for room left by a retry"],
        seen="nobody_waits_beside_room",
    ),
    "16 the end of a slot's owner is lost": Trace(
        play=_the_end_of_a_slot_owner_is_lost,
        without=one(attune.storage.lines, "list_leaked", planted.none),
        seen="everything_can_end",
    ),
    "9 drained again and again": Trace(
        play=_drained_again_and_again, without=MISTAKES["hand-backs count"], seen="patience_is_spent_by_fault_only"
    ),
    "10 the next in line meets an older one": Trace(
        play=_next_in_line_meets_an_older_one,
        without=MISTAKES["newcomers pass who waits"],
        seen="nobody_passes_who_waits",
    ),
    "11 the line goes while a retry is outside": Trace(
        play=_line_goes_while_a_retry_is_outside,
        without=one(attune.storage.lines, "delete_idle", planted.delete_any_idle),
        seen="line_order",
    ),
    "12 pinned work is placed elsewhere": Trace(
        play=_pinned_to_a_drained_worker, without=MISTAKES["pinned work is handed back"], seen="pinned_stays"
    ),
    "13 the only worker is gone for good": Trace(
        play=_the_only_worker_is_gone,
        without=one(attune.storage.availability.serving, "list_stranded", planted.none)
        | one(attune.storage.availability.serving, "settle_served", planted.nothing),
        seen="everything_can_end",
    ),
    "14 a parent ends by force": Trace(
        play=_parent_ends_by_force, without=MISTAKES["force does not cascade"], seen="slot_owner_alive"
    ),
}
