"""The services in virtual time: their own routing, sweeps, claims, heartbeats and reports, on a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from attune.domain.definitions import Isolation, Runner
from attune.domain.messages import DEAD_TOPIC, Message
from attune.domain.placement import NATIVE_BUFFER
from attune.domain.retry import Ending
from attune.executor.routing import DEAD_LETTER_TYPES, dead_letter_handler, handler_of, operations_by_type
from attune.executor.sweeps import SweepSettings, repeat, sweeps
from attune.operations.attend_workers import begin_drain, hand_back_unstarted, leave, register_worker
from attune.operations.start_executions import Claimant
from attune.runtime.supervise import CannotStart
from attune.storage.assignments import Held
from attune.storage.database import may_work_later
from attune.storage.tx import Tx
from attune.storage.workers import Registration
from attune.transport.consume import Handler, consume
from attune.transport.expiry import expire_dispatches
from attune.transport.topology import EXECUTOR_QUEUES, Queue, dead_letter_queue, worker_queues
from attune.worker.attempts import Attempts
from attune.worker.claims import Claims
from attune.worker.heartbeat import Heartbeat
from attune.worker.perform import Performer
from attune.worker.plan import WorkerParts
from attune.worker.reports import Reports
from attune.worker.runners.protocol import StopReason
from attune.worker.service import LEASE_INTERVALS, Worker
from tests.simulation.whole.broker import LIMITS, TTL_SECONDS, Broker
from tests.simulation.whole.database import StoreConnection, StoreDatabase
from tests.simulation.whole.scripts import Ledger, ScriptRunner
from tests.simulation.whole.store import Store, session_of
from tests.simulation.whole.virtual import Process, Task, VirtualEvent, sleep

HEARTBEAT_SECONDS = 10.0
SETTINGS = SweepSettings(
    heartbeat_interval=HEARTBEAT_SECONDS,
    scheduled_timeout=90.0,
    timeout_check_interval=15.0,
    placements_max=2,
    history_days=7,
    dead_letter_seconds=3600.0,
    pinned_ttl_seconds=None,
    idempotency_hours=24,
    queue_timeout_seconds=1500.0,
    health_check_interval=20.0,
)
# Sweeps that look more often look this often here; the one for lost workers keeps its pace.
LOOK_SECONDS_MIN = 10.0
# Nothing here has a history, a rate or a limit that moves.
NOT_SIMULATED = frozenset({"housekeeping", "line history", "adaptive limits"})
MAX_QUEUE_LENGTH = 1000
QUEUES = tuple(queue for queue in EXECUTOR_QUEUES if "requests" in queue.name or "completed" in queue.name)


class Counters:
    """In the place of metrics: everything may be counted, and what sweeps did is remembered."""

    def __init__(self) -> None:
        self.acted: dict[str, float] = {}

    def __getattr__(self, _name: str) -> Counters:
        return self

    def labels(self, **labels: str) -> _Counter:
        return _Counter(self, labels.get("sweep", ""))

    def inc(self, amount: float = 1) -> None:
        """Nobody asks."""

    def observe(self, amount: float) -> None:
        """Nobody asks."""


@dataclass(slots=True)
class _Counter:
    counters: Counters
    sweep: str

    def inc(self, amount: float = 1) -> None:
        self.counters.acted[self.sweep] = self.counters.acted.get(self.sweep, 0) + amount

    def observe(self, amount: float) -> None:
        """Nobody asks."""


@dataclass(kw_only=True)
class Surroundings:
    """What every service stands on."""

    store: Store
    broker: Broker
    dice: Random
    ledger: Ledger
    counters: Counters


class Executor:
    """One replica."""

    def __init__(self, around: Surroundings, name: str) -> None:
        self.around = around
        self.process = Process(around.store.loop, name)
        self.database = StoreDatabase(around.store, self.process)
        around.broker.attach(self.database, self.process)

    def start(self) -> None:
        around, process, database = self.around, self.process, self.database
        draw = around.dice.random
        operations = operations_by_type(actor=process.name, max_queue_length=MAX_QUEUE_LENGTH, draw=draw)
        for queue in QUEUES:
            self._consume(queue, handler_of(operations), operations.keys())
        buried = dead_letter_handler(placements_max=SETTINGS.placements_max, tell=lambda _: None)
        self._consume(dead_letter_queue(ttl_ms=1000), buried, DEAD_LETTER_TYPES)
        for sweep in sweeps(SETTINGS, draw=draw):
            if sweep.name not in NOT_SIMULATED:
                slowest = 0.0 if sweep.name == "lost workers" else LOOK_SECONDS_MIN
                paced = replace(sweep, interval_seconds=max(sweep.interval_seconds, slowest))
                process.start(repeat(paced, cast("Any", database), metrics=cast("Any", around.counters), draw=draw))
        carry = around.broker.relay if around.broker.external else around.broker.poll
        process.start(carry(database, process))
        process.start(
            _again(
                lambda: expire_dispatches(
                    cast("Any", database), ttl_seconds=TTL_SECONDS, is_mine=lambda: True, moved=self._wake_dead
                )
            )
        )

    def _consume(self, queue: Queue, handler: Handler, types: Any) -> None:  # noqa: ANN401 — a collection of names
        broker = self.around.broker
        broker.adopt(queue)
        source = broker.consume(self.process, self.database, queue)
        self.process.start(consume(cast("Any", self.database), source, witnessed(handler), LIMITS, types=types))

    def _wake_dead(self, _messages: object) -> None:
        for consumer in self.around.broker.consumers:
            if (
                consumer.process is self.process
                and DEAD_TOPIC in consumer.queue.topics
                and not self.around.broker.external
            ):
                consumer.source.wake({DEAD_TOPIC})


def witnessed(handler: Handler) -> Handler:
    """The same, noting whose effect is part of the transaction."""

    async def handle(tx: Tx, messages: Sequence[Message]) -> None:
        session_of(tx).settled.update(message.id for message in messages)
        await handler(tx, messages)

    return handle


async def _again(work: Callable[[], Any]) -> None:
    """As the transport does: what ends by losing the database begins again."""
    while True:
        try:
            await work()
        except Exception as error:
            if not may_work_later(error):
                raise
            await sleep(1.0)


class Pulse(Heartbeat):
    """The real heartbeat; only its pause is virtual."""

    async def _pause(self, seconds: float) -> None:
        now = cast("VirtualEvent", self._now)
        await now.wait_for(seconds)
        now.clear()


class DirectReports(Reports):
    """The real reports without the gathering of many into one."""

    async def finish(self, held: Held, ending: Ending, chunks: Any) -> bool:  # noqa: ANN401 — chunks, always none
        self._ends = cast("Any", _OneByOne(self))
        return await super().finish(held, ending, chunks)


@dataclass(slots=True)
class _OneByOne:
    reports: Reports

    async def submit(self, item: Any) -> bool:  # noqa: ANN401 — what `Reports` makes of a report
        return (await self.reports._write_ends([item]))[0]


@dataclass(kw_only=True)
class WorkerPlan:
    """What one worker is to be."""

    name: str
    capacity: int
    labels: dict[str, Any]
    runtimes: tuple[Runner, ...] = (Runner.SHELL, Runner.NATIVE)


class SimulatedWorker:
    """One start of a worker: the real parts, put together as `worker.service` does."""

    def __init__(self, around: Surroundings, plan: WorkerPlan, number: int) -> None:
        self.around = around
        self.plan = plan
        self.number = number
        self.instance = UUID(int=number)
        self.process = Process(around.store.loop, plan.name)
        self.database = StoreDatabase(around.store, self.process)
        around.broker.attach(self.database, self.process)
        self.worker_id: int | None = None
        self.leaving = False
        self.left = False

    def start(self) -> None:
        self.process.start(_again_until_done(self._live))

    async def _live(self) -> None:
        plan = self.plan
        registration = Registration(
            name=plan.name,
            instance=self.instance,
            runtimes=list(plan.runtimes),
            labels=plan.labels,
            capacity=plan.capacity,
            isolation=Isolation.NONE,
            heartbeat_interval=HEARTBEAT_SECONDS,
            host="",
            pid=self.number,
            version="",
        )
        async with self.database.transaction() as tx:
            self.worker_id = await register_worker(tx, registration)
        self._assemble(self.worker_id)

    def _assemble(self, worker_id: int) -> None:
        plan, database, process = self.plan, cast("Any", self.database), self.process
        lease_seconds = HEARTBEAT_SECONDS * LEASE_INTERVALS
        claimant = Claimant(worker_id=worker_id, name=plan.name, instance=self.instance, lease_seconds=lease_seconds)
        self.attempts = Attempts(capacity=plan.capacity, buffer=int(plan.capacity * NATIVE_BUFFER))
        slot_freed = VirtualEvent()
        metrics = cast("Any", self.around.counters)

        async def take_next(tx: Any, ended: Any) -> None:  # noqa: ANN401 — as `Reports` calls it
            await self.claims.take_next(tx, ended)

        scripts = ScriptRunner(self)
        self.performer = Performer(
            parts=self._parts(),
            attempts=self.attempts,
            runners=dict.fromkeys(plan.runtimes, scripts),
            reports=DirectReports(database, claimant, batch_max=1, take_next=take_next, tell=lambda _ids: None),
            slot_freed=slot_freed.set,
        )
        self.claims = Claims(
            database=database,
            attempts=self.attempts,
            claimant=claimant,
            begin=self.performer.begin,
            slot_freed=slot_freed,
        )
        self.heartbeat = Pulse(
            connection=cast("Any", StoreConnection(self.database)),
            attempts=self.attempts,
            claims=self.claims,
            claimant=claimant,
            interval_seconds=HEARTBEAT_SECONDS,
            metrics=metrics,
        )
        process.start(self.heartbeat.beat_for_ever())
        process.start(self.heartbeat.watch_clocks())
        process.start(self.claims.tend())
        dispatches, cancels = worker_queues(worker_id, ttl_ms=1000)
        self._dispatches = self._consume(dispatches, self.claims.take_dispatches)
        control = _Control(_claimant=claimant, heartbeat=self.heartbeat, attempts=self.attempts)
        self._consume(cancels, cast("Any", control).take_control)
        if not self.around.broker.external:
            process.start(self.around.broker.poll(self.database, process))

    def _parts(self) -> WorkerParts:
        return WorkerParts(
            plan=cast("Any", SimpleNamespace(name=self.plan.name, artifact_bytes_max=0)),
            database=cast("Any", self.database),
            transport=cast("Any", None),
            metrics=cast("Any", self.around.counters),
        )

    def _consume(self, queue: Queue, handler: Handler) -> Task:
        broker = self.around.broker
        broker.adopt(queue)
        source = broker.consume(self.process, self.database, queue)
        return self.process.start(consume(cast("Any", self.database), source, witnessed(handler), LIMITS))

    def go_on(self) -> None:
        """SIGCONT: the clocks first."""
        self.process.stopped = False
        if self.worker_id is not None and hasattr(self, "heartbeat"):
            self.process._do(self.heartbeat.continue_after_pause)
        self.process.go_on()

    async def drain(self) -> None:
        """Leave in good order, in the steps of `Worker.drain`."""
        self.leaving = True
        if not hasattr(self, "claims"):
            return
        self.claims.close()
        await self._insist(lambda tx: begin_drain(tx, instance=self.instance))
        self._dispatches.cancel()
        while not self._dispatches.finished:
            await sleep(0.05)
        await _try(self.claims.settle)
        await self._hand_back()
        for entry in self.attempts.leased():
            entry.stop.request(StopReason.SHUTDOWN)
        while self.performer._tasks:
            await sleep(0.5)
        await self._hand_back()
        await self._insist(lambda tx: leave(tx, instance=self.instance))
        self.left = True

    async def _hand_back(self) -> None:
        await self._insist(lambda tx: hand_back_unstarted(tx, instance=self.instance, actor=self.plan.name))

    async def _insist(self, operation: Callable[[Any], Any]) -> None:
        async def run() -> None:
            async with self.database.transaction() as tx:
                await operation(tx)

        await _try(run)


async def _try(work: Callable[[], Any]) -> None:
    """A stopping worker does not wait for ever; the sweeps mend what it could not say."""
    for _ in range(5):
        try:
            await work()
        except Exception as error:
            if not may_work_later(error):
                raise
            await sleep(1.0)
        else:
            return


async def _again_until_done(work: Callable[[], Any]) -> None:
    while True:
        try:
            await work()
        except CannotStart:
            return
        except Exception as error:
            if not may_work_later(error):
                raise
            await sleep(1.0)
        else:
            return


@dataclass(slots=True, kw_only=True)
class _Control:
    """As much of a `Worker` as handles cancels and pings."""

    _claimant: Claimant
    heartbeat: Heartbeat
    attempts: Attempts

    take_control = Worker.take_control
    cancel = Worker.cancel
