"""A whole installation in virtual time: it lives through a plan, is mended, and has to come to rest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from attune.domain.execution import TERMINAL
from attune.operations.attend_workers import mark_worker_lost
from attune.operations.request_executions import request_executions
from attune.runtime.supervise import CannotStart
from attune.storage.births import NewExecution
from attune.storage.database import may_work_later
from tests.simulation.whole.broker import Broker
from tests.simulation.whole.database import StoreDatabase, give_up_idle
from tests.simulation.whole.judge import Judge, Violation
from tests.simulation.whole.plan import Plan, make_actions, make_policies
from tests.simulation.whole.rows import ActionRow
from tests.simulation.whole.scripts import Ledger, Script
from tests.simulation.whole.services import (
    MAX_QUEUE_LENGTH,
    SETTINGS,
    Counters,
    Executor,
    SimulatedWorker,
    Surroundings,
    WorkerPlan,
)
from tests.simulation.whole.store import Session, Store
from tests.simulation.whole.virtual import Loop, Process, sleep

LOOK_SECONDS = 2.3


@dataclass(kw_only=True)
class World:
    """Everything there is."""

    plan: Plan
    loop: Loop = field(init=False)
    around: Surroundings = field(init=False)
    judge: Judge = field(init=False)
    executors: list[Executor] = field(default_factory=list)
    workers: dict[str, SimulatedWorker] = field(default_factory=dict)
    trace: list[Any] = field(default_factory=list)
    violation: Violation | None = None
    _starts: int = 0

    def __post_init__(self) -> None:
        dice = Random(self.plan.seed)
        self.loop = Loop(dice)
        store = Store(loop=self.loop, dice=dice, interleaving=self.plan.interleaving)
        store.on_commit, store.on_trouble = self._see_commit, self.accuse
        store.on_read = lambda session: self.judge.settled.update(session.settled)
        for action in make_actions():
            store.table("action")[action.id] = action
        for policy in make_policies():
            store.table("policy")[policy.id] = policy
        for name in ("execution", "assignment", "unplaced", "worker", "line", "entry", "outbox", "dead_letter"):
            store.table(name)
        store.table("history")[0] = []
        ledger = Ledger(loop=self.loop)
        broker = Broker(store=store, dice=dice, external=self.plan.external, weather=self.plan.weather)
        self.around = Surroundings(store=store, broker=broker, dice=dice, ledger=ledger, counters=Counters())
        self.judge = Judge(store=store, ledger=ledger, placements_max=SETTINGS.placements_max)
        broker.on_acknowledged = lambda message: self.judge_by(lambda: self.judge.see_acknowledgement(message))
        ledger.on_spawn, ledger.ask_for_children = self._see_spawn, self._ask_for_children
        self.client = Process(self.loop, "client")
        self.api = self._database(self.client)

    @property
    def services(self) -> list[Executor | SimulatedWorker]:
        return [*self.executors, *self.workers.values()]

    @property
    def store(self) -> Store:
        return self.around.store

    def _database(self, process: Process) -> StoreDatabase:
        process.crashed = self._see_crash
        database = StoreDatabase(self.store, process)
        self.around.broker.attach(database, process)
        return database

    # Living

    def begin(self) -> None:
        for number in range(1, self.plan.executors + 1):
            self.start_executor(f"executor-{number}")
        for worker in self.plan.workers:
            self.start_worker(worker)
        if self.plan.calm:
            self.look_for_idleness()

    def look_for_idleness(self) -> None:
        """As long as the run lasts. A lock that timed out may cost seconds; some looks in a row are no accident."""
        self.judge_by(self.judge.see_idleness)
        self.loop.at(LOOK_SECONDS, self.look_for_idleness)

    def start_executor(self, name: str) -> Executor:
        executor = Executor(self.around, name)
        executor.process.crashed = self._see_crash
        executor.database.lost_answers = self._lost_answers
        self.executors = [*(each for each in self.executors if each.process.alive), executor]
        executor.start()
        return executor

    def start_worker(self, plan: WorkerPlan) -> SimulatedWorker:
        self._starts += 1
        worker = SimulatedWorker(self.around, plan, self._starts)
        worker.process.crashed = self._see_crash
        worker.database.lost_answers = self._lost_answers
        self.workers[plan.name] = worker
        worker.start()
        return worker

    @property
    def _lost_answers(self) -> float:
        return 0.0 if self.loop.now >= self.plan.horizon_seconds else self.plan.lost_answers

    def do(self, deed: Callable[[Any], Any]) -> None:
        """Something a person asks the API for, in a transaction; tried again a few times."""

        async def work() -> None:
            for _ in range(3):
                try:
                    async with self.api.transaction() as tx:
                        await deed(tx)
                except Exception as error:
                    if not may_work_later(error):
                        raise
                    await sleep(0.5)
                else:
                    return

        self.client.start(work())

    def submit(self, *new: NewExecution) -> None:
        async def accept(tx: Any) -> None:  # noqa: ANN401 — a Tx
            await request_executions(tx, [list(new)], max_queue_length=MAX_QUEUE_LENGTH, no_worker_grace_seconds=30.0)

        self.do(accept)

    def kill(self, process: Process) -> None:
        process.kill()
        self.around.ledger.kill_with(process)
        self.around.broker.disconnect(process)

    def kill_worker(self, worker: SimulatedWorker, *, told: bool) -> None:
        """Its supervisor may have seen it die."""
        self.kill(worker.process)
        if told:
            self.do(lambda tx: mark_worker_lost(tx, name=worker.plan.name, pid=worker.number))

    def stop(self, process: Process) -> None:
        process.stop()
        self.around.ledger.excuse(process, "its worker was stopped")
        give_up_idle(self.store, process)

    def go_on(self, process: Process) -> None:
        for worker in self.workers.values():
            if worker.process is process:
                worker.go_on()
                return
        process.go_on()

    # Seeing

    def _see_commit(self, session: Session) -> None:
        self.store.table("history")[0].extend(session.history)
        if session.history or session.log:
            moves = [(m.execution_id, m.before, m.after, m.attempt, m.code, m.reason) for m in session.history]
            log = [(line, row.op, row.entry.execution_id if row.entry else 0) for line, row in session.log]
            self.trace.append((round(self.loop.now, 4), session.process.name, moves, log))
        self.judge_by(lambda: self.judge.see_commit(session))

    def _see_spawn(self, script: Script) -> None:
        self.trace.append((round(self.loop.now, 4), script.process.name, "spawns", script.execution_id, script.attempt))
        self.judge_by(lambda: self.judge.see_spawn(script))

    def judge_by(self, judge: Callable[[], None]) -> None:
        try:
            judge()
        except Violation as violation:
            self.violation = self.violation or violation

    def accuse(self, name: str, text: str) -> None:
        self.violation = self.violation or Violation(name, text)

    def _see_crash(self, process: Process, error: BaseException) -> None:
        if isinstance(error, CannotStart):
            self.loop.at(0.0, lambda: self.kill(process))
            return
        self.accuse("nothing_crashes", f"{process.name}: {type(error).__name__}: {error}")

    def _ask_for_children(self, script: Script, number: int) -> Callable[[], bool]:
        """A script that asks for work of its own and waits for it."""
        parent = self.store.table("execution")[script.execution_id]
        seconds = self.around.dice.random() * 2
        for _ in range(number):
            how = {"g": parent.parameters["g"], "seconds": seconds}
            self.submit(new_execution(self.store, parent.action, how, parent=parent.id))
        asked_at = self.loop.now

        def over() -> bool:
            children = [row for row in self.store.table("execution").values() if row.parent == parent.id]
            return self.loop.now > asked_at + 1 and all(row.ended_at is not None for row in children)

        return over

    # Coming to rest

    def is_at_rest(self) -> bool:
        tables = self.store.tables
        if tables["assignment"] or tables["unplaced"] or tables["entry"] or tables["outbox"]:
            return False
        return all(row.status in TERMINAL for row in tables["execution"].values()) and self.around.broker.is_empty()

    def end(self) -> None:
        """Let nothing live on: what was started is closed."""
        for service in self.services:
            service.process.kill()
        self.client.kill()

    def digest(self) -> str:
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]


def new_execution(
    store: Store,
    action_id: int,
    parameters: dict[str, Any],
    *,
    parent: int | None = None,
    **more: Any,  # noqa: ANN401 — what a request may say besides
) -> NewExecution:
    action: ActionRow = store.table("action")[action_id]
    return NewExecution(
        action_id=action_id,
        action_ref=action.ref,
        pack_version="1",
        runner=action.runner,
        parameters=parameters,
        priority=more.get("priority", 0),
        identity=None,
        max_attempts=action.retry.max_attempts,
        timeout_seconds=action.timeout_seconds,
        not_before=more.get("not_before"),
        pinned_to=more.get("pinned_to"),
        trace_tag=None,
        traceparent=None,
        changed_by="client",
        worker_queue_ttl_seconds=more.get("ttl_seconds"),
        parent=parent,
    )
