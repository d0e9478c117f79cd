"""The life of a worker: it registers, consumes, runs, drains and leaves."""

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog

from attune.domain.messages import Item, Message, MessageType
from attune.domain.placement import NATIVE_BUFFER
from attune.operations.attend_workers import begin_drain, hand_back_unstarted, leave, register_worker
from attune.operations.start_executions import Claimant
from attune.operations.workers.answer_ping import answer_ping
from attune.runtime.clock import draw, jittered_backoff, monotonic, new_uuid
from attune.runtime.failpoints import afailpoint
from attune.runtime.supervise import Tasks
from attune.storage.database import may_work_later
from attune.storage.own_connection import OwnConnection
from attune.storage.tx import Tx
from attune.storage.workers import Registration
from attune.transport.consume import Handler, Tally, consume
from attune.transport.topology import Queue, worker_queues
from attune.worker.attempts import Attempts
from attune.worker.calls import Calls
from attune.worker.claims import Claims
from attune.worker.disk import Disk
from attune.worker.guardian import Guardian
from attune.worker.heartbeat import Heartbeat
from attune.worker.isolation import confine
from attune.worker.machine import prepare_machine
from attune.worker.perform import Performer
from attune.worker.plan import GRACE_SECONDS, Bounds, WorkerParts, WorkerPlan
from attune.worker.processes import Children, Marking, end_all, find_marked
from attune.worker.reports import Reports
from attune.worker.runners.protocol import StopReason
from attune.worker.runners.script import ScriptPlan
from attune.worker.runtimes.equip import Equipment, equip

__all__ = ["Bounds", "Worker", "WorkerParts", "WorkerPlan", "run_worker", "start_worker"]

T = TypeVar("T")

# A lease lasts this many heartbeats.
LEASE_INTERVALS: Final = 3
# How long each step of stopping insists on a database that does not answer.
STEP_SECONDS_MAX: Final = 5.0
# After the grace, for the last reports.
LAST_REPORTS_SECONDS: Final = 10.0
# How often dead orphans are taken leave of.
REAP_SECONDS: Final = 5.0
# How often unused environments are looked for.
TIDY_SECONDS: Final = 3600.0
# Each pass hands back hundreds; more passes than this means that something keeps placing on a draining worker.
HAND_BACK_PASSES_MAX: Final = 100


async def run_worker(parts: WorkerParts, tasks: Tasks) -> None:
    """Work until told to stop, then leave in good order. Runs on the stock loop of the main thread."""
    worker = await start_worker(parts, tasks)
    try:
        await tasks.stop.wait()
        await worker.drain()
    finally:
        await worker.end()


async def start_worker(parts: WorkerParts, tasks: Tasks) -> "Worker":
    """Clear what an earlier start left, register, declare the queues, and begin to consume."""
    plan = parts.plan
    marking = Marking(home=plan.home, worker=plan.name, instance=new_uuid())
    await prepare_machine(plan, marking)
    children = Children()
    launcher, confinement = await confine(plan, children)
    scripts = ScriptPlan(
        scratch=plan.scratch,
        marking=marking,
        children=children,
        launcher=launcher,
        confinement=confinement,
        grace_seconds=plan.grace_seconds,
        api_url=plan.api_url,
    )
    try:
        equipment = await equip(plan, scripts)
        worker = Worker(parts, equipment, await _register(parts, equipment))
        await worker.start(tasks)
    except BaseException:
        launcher.stop()
        raise
    return worker


async def _register(parts: WorkerParts, equipment: Equipment) -> Claimant:
    plan = parts.plan
    async with parts.database.transaction() as tx:
        worker_id = await register_worker(tx, _registration(plan, equipment))
    return Claimant(
        worker_id=worker_id,
        name=plan.name,
        instance=equipment.scripts.marking.instance,
        lease_seconds=plan.heartbeat_seconds * LEASE_INTERVALS,
    )


def _registration(plan: WorkerPlan, equipment: Equipment) -> Registration:
    scripts, offer = equipment.scripts, equipment.offer
    return Registration(
        name=plan.name,
        instance=scripts.marking.instance,
        runtimes=sorted(offer.runners),
        runtime_details=offer.details,
        labels=dict(plan.labels),
        capacity=plan.capacity,
        isolation=scripts.confinement.highest,
        isolation_usual=scripts.confinement.shown,
        heartbeat_interval=plan.heartbeat_seconds,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=plan.version,
    )


class Worker:
    """A registered worker and its parts."""

    def __init__(self, parts: WorkerParts, equipment: Equipment, claimant: Claimant) -> None:
        plan, scripts = parts.plan, equipment.scripts
        self._parts = parts
        self._scripts = scripts
        self._claimant = claimant
        self.worker_id = claimant.worker_id
        self._equipment = equipment
        self._disk = Disk(
            parts.database,
            claimant.instance,
            place=scripts.scratch,
            free_mb_min=plan.bounds.disk_free_mb,
            doubted=scripts.disk_doubted,
        )
        self._guardian = Guardian(scripts.marking, scripts.children, engine=equipment.engine)
        self._connection = OwnConnection(parts.database, application=f"attune-worker-{plan.name}-heartbeat"[:63])
        self._log = structlog.get_logger().bind(worker=plan.name, worker_id=claimant.worker_id)
        self.attempts = Attempts(capacity=plan.capacity, buffer=int(plan.capacity * NATIVE_BUFFER))
        self._calls = Calls(parts.database)
        slot_freed = asyncio.Event()
        self.performer = Performer(
            parts=parts,
            attempts=self.attempts,
            runners=equipment.offer.runners,
            reports=self._reports(claimant),
            slot_freed=slot_freed.set,
        )
        self.claims = Claims(
            database=parts.database,
            attempts=self.attempts,
            claimant=claimant,
            begin=self.performer.begin,
            slot_freed=slot_freed,
        )
        self.heartbeat = Heartbeat(
            connection=self._connection,
            attempts=self.attempts,
            claims=self.claims,
            claimant=claimant,
            interval_seconds=plan.heartbeat_seconds,
            metrics=parts.metrics,
        )
        self._dispatches: asyncio.Task[None] | None = None

    def _reports(self, claimant: Claimant) -> Reports:
        async def take_next(tx: Tx, ended: Sequence[int]) -> None:
            await self.claims.take_next(tx, ended)

        batch_max = self._parts.plan.report_batch_max
        # One by one means one transaction for each move, for comparison.
        return Reports(
            self._parts.database,
            claimant,
            batch_max=batch_max,
            take_next=take_next if batch_max > 1 else None,
            tell=self._calls.tell,
        )

    async def start(self, tasks: Tasks) -> None:
        plan, transport = self._parts.plan, self._parts.transport
        await self._guardian.start()
        queues = worker_queues(self._claimant.worker_id, ttl_ms=plan.queue_ttl_ms, dead_letters=plan.dead_letters)
        await afailpoint("worker.registered.before_consume")
        await transport.declare(queues)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self.heartbeat.continue_after_pause)
        tasks.start("heartbeat", self.heartbeat.beat_for_ever)
        tasks.start("lease clocks", self.heartbeat.watch_clocks)
        tasks.start("claims", self.claims.tend)
        tasks.start("calls", self._calls.run)
        tasks.start("orphans", self._reap_for_ever)
        tasks.start("environments", self._tidy_for_ever)
        tasks.start("fork servers", self._equipment.fork_servers.tend)
        tasks.start("disk", lambda: self._disk.watch(self.claims.empty))
        self._dispatches = tasks.start("dispatches", lambda: self._consume(queues[0], self.claims.take_dispatches))
        tasks.start("cancels", lambda: self._consume(queues[1], self.take_control))
        self._log.info("worker.started", instance=str(self._claimant.instance), capacity=plan.capacity)

    async def take_control(self, tx: Tx, messages: Sequence[Message]) -> None:
        """Cancels, and pings: the answer is written here, because it says that this consumer lives."""
        await afailpoint("worker.control")
        if any(message.type == MessageType.WORKER_PINGED for message in messages):
            await answer_ping(tx, instance=self._claimant.instance)
            # Somebody may have drained or uncordoned this worker; the answer to a heartbeat says so.
            self.heartbeat.beat_now()
        for message in messages:
            if message.type == MessageType.EXECUTION_CANCEL_REQUESTED:
                for item in message.items:
                    self.cancel(item)

    def cancel(self, item: Item) -> None:
        """End an attempt; one that is being claimed ends as soon as it begins."""
        if entry := self.attempts.find(item):
            entry.stop.request(StopReason.CANCELLED)

    async def drain(self) -> None:
        """Take nothing more, give back what was not started, and wait for what runs as long as allowed."""
        plan, instance = self._parts.plan, self._claimant.instance
        self._log.info("worker.draining", running=len(self.attempts))
        self.claims.close()
        await self._insist("drain", lambda tx: begin_drain(tx, instance=instance))
        if self._dispatches is not None:
            self._dispatches.cancel()
            await asyncio.wait([self._dispatches])
        await afailpoint("worker.drain.before_hand_back")
        await self._try("settle", self.claims.settle)
        await self._hand_back()
        if not await self.performer.wait(plan.shutdown_seconds):
            for entry in self.attempts.leased():
                entry.stop.request(StopReason.SHUTDOWN)
            await self.performer.wait(plan.grace_seconds + LAST_REPORTS_SECONDS)
        # Again, for a placement that was under way when the drain began.
        await self._hand_back()
        await afailpoint("worker.drain.before_leave")
        await self._insist("leave", lambda tx: leave(tx, instance=instance))
        self._log.info("worker.left")

    async def end(self) -> None:
        """Leave nothing running, in whatever order the worker ends."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
        self.performer.abandon()
        await self.performer.wait(GRACE_SECONDS)
        self._connection.cut()
        # A process may have been forked while its tree was being killed.
        await end_all(lambda: find_marked(self._scripts.marking.prefix))
        await self._equipment.close()
        await self._guardian.stop()
        await asyncio.to_thread(shutil.rmtree, self._scripts.scratch, ignore_errors=True)

    async def _consume(self, queue: Queue, handler: Handler) -> None:
        limits = self._parts.plan.limits
        async with self._parts.transport.consume(queue, limits) as source:
            await consume(self._parts.database, source, handler, limits, tally=Tally(metrics=self._parts.metrics))

    async def _reap_for_ever(self) -> None:
        while True:
            await asyncio.sleep(REAP_SECONDS)
            self._scripts.children.reap()

    async def _tidy_for_ever(self) -> None:
        while True:
            if removed := await asyncio.to_thread(self._equipment.environments.remove_unused):
                self._log.info("environments.removed", count=removed)
            await asyncio.sleep(TIDY_SECONDS)

    async def _hand_back(self) -> None:
        """In as many passes as it takes."""
        instance, actor = self._claimant.instance, self._claimant.name
        for _ in range(HAND_BACK_PASSES_MAX):
            if not await self._insist("hand back", lambda tx: hand_back_unstarted(tx, instance=instance, actor=actor)):
                return

    async def _insist(self, step: str, operation: Callable[[Tx], Awaitable[int | None]]) -> int:
        async def run() -> int:
            async with self._parts.database.transaction() as tx:
                return await operation(tx) or 0

        return await self._try(step, run) or 0

    async def _try(self, step: str, run: Callable[[], Awaitable[T]]) -> T | None:
        """A stopping worker does not wait for ever; the sweeps mend what it could not say."""
        deadline = monotonic() + STEP_SECONDS_MAX
        failures = 0
        while True:
            try:
                async with asyncio.timeout(STEP_SECONDS_MAX):
                    return await run()
            except Exception as error:  # noqa: BLE001  nothing may keep a worker from stopping
                failures += 1
                if not may_work_later(error) or monotonic() > deadline:
                    self._log.exception("worker.stop_step_failed", step=step)
                    return None
            await asyncio.sleep(jittered_backoff(failures, first_seconds=0.05, ceiling_seconds=1.0, drawn=draw()))
