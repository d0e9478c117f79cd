"""Does what a plan says: harms the stage of its own run, fault by fault, and heals it again."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import kill
from time import monotonic

import aio_pika
import asyncpg
from aio_pika.exceptions import AMQPException

from attune.transport.topology import worker_queues
from tests.chaos.kinds import BROKER, EVERYTHING, NEEDS_BROKER, NEEDS_SHIM, POSTGRES, SERVICES, Kind
from tests.chaos.plan import Fault
from tests.chaos.points.ways import way_to
from tests.chaos.shim import Shim
from tests.chaos.stage import Stage
from tests.witness.proxy import Proxy, everybody

LOOK_SECONDS = 0.1
COMMIT = b"COMMIT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that was really done."""

    fault: Fault
    began: datetime
    healed: datetime


@dataclass(slots=True, kw_only=True)
class Nemesis:
    """What was done so far, and what could not be."""

    stage: Stage
    say: Callable[[str], None]
    strikes: list[Strike] = field(default_factory=list)
    # Processes that got SIGKILL, by their service.
    kills: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    places: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def strike(self, faults: tuple[Fault, ...]) -> None:
        """Every fault at its time; returns when all are healed."""
        begin = monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                tasks.create_task(self._strike_at(fault, begin))

    def unavailable(self) -> dict[Kind, str]:
        """Kinds that cannot be done here, and why."""
        found: dict[Kind, str] = {}
        if self.stage.broker is None:
            found |= dict.fromkeys(NEEDS_BROKER, "this transport has no broker")
        if not isinstance(self.stage.shim, Shim):
            found |= dict.fromkeys(NEEDS_SHIM, self.stage.shim)
        return found

    async def _strike_at(self, fault: Fault, begin: float) -> None:
        await asyncio.sleep(max(0.0, begin + fault.at - monotonic()))
        if fault.kind in self.unavailable():
            return
        # A server that is still coming back is left alone until it is there.
        async with self.places[fault.target.partition("/")[0]]:
            began = datetime.now(UTC)
            async with self._harm(fault) as done:
                if done:
                    self.say(f"{monotonic() - begin:6.1f} s  {fault.kind} of {fault.target}" + _length(fault))
                    await (self._lead(fault, begin) if fault.kind is Kind.FAILPOINT else asyncio.sleep(fault.seconds))
        if done:
            self.strikes.append(Strike(fault=fault, began=began, healed=datetime.now(UTC)))
        else:
            self.missed.append(f"{fault.kind} of {fault.target}: it was not there")

    def _harm(self, fault: Fault) -> AbstractAsyncContextManager[bool]:
        deeds: Mapping[Kind, Callable[[Fault], AbstractAsyncContextManager[bool]]] = {
            Kind.KILL: self._kill,
            Kind.STOP: self._stop,
            Kind.KILL_TOGETHER: self._kill,
            Kind.PAUSE: self._pause,
            Kind.CUT: self._cut,
            Kind.BLACK_HOLE: self._swallow,
            Kind.ANSWERS_LOST: self._swallow,
            Kind.POSTGRES_CRASH: self._crash_postgres,
            Kind.POSTGRES_BACKEND: self._kill_backend,
            Kind.POSTGRES_SESSION: self._end_session,
            Kind.BROKER_KILL: self._kill_broker,
            Kind.BROKER_WIPE: self._kill_broker,
            Kind.QUEUE_DELETED: self._delete_queue,
            Kind.SLOW_SYNC: self._order,
            Kind.CLOCK_SKEW: self._order,
            Kind.DISK_FULL: self._order,
            Kind.FAILPOINT: self._let_loose,
        }
        self.stage.refuse_others()
        return deeds[fault.kind](fault)

    @asynccontextmanager
    async def _kill(self, fault: Fault) -> AsyncIterator[bool]:
        """The supervisor brings back whom we kill; one of them, all of a service, or all there are."""
        everything = fault.target == EVERYTHING
        victims = [name for name in SERVICES if everything or fault.target in {name, name.rpartition("-")[0]}]
        struck = [name for name in victims if self.stage.send(name, signal.SIGKILL) is not None]
        self.kills.update(name.rpartition("-")[0] for name in struck)
        yield bool(struck)

    @asynccontextmanager
    async def _stop(self, fault: Fault) -> AsyncIterator[bool]:
        """Asked to end in good order, as before an upgrade; the supervisor starts it again."""
        yield self.stage.send(fault.target, signal.SIGTERM) is not None

    @asynccontextmanager
    async def _pause(self, fault: Fault) -> AsyncIterator[bool]:
        pid = self.stage.send(fault.target, signal.SIGSTOP)
        try:
            yield pid is not None
        finally:
            if pid is not None:
                with suppress(ProcessLookupError):
                    kill(pid, signal.SIGCONT)

    def _way(self, fault: Fault) -> tuple[Proxy, Callable[[int], bool]]:
        """The way that a fault is about, and whose connections on it."""
        server, _, service = fault.target.partition("/")
        return self.stage.ways[server], self._whose(service) if service else everybody

    def _whose(self, service: str) -> Callable[[int], bool]:
        known: dict[int, bool] = {}

        def suffers(port: int) -> bool:
            if port not in known:
                known[port] = port in self.stage.ports_of(service)
            return known[port]

        return suffers

    @asynccontextmanager
    async def _cut(self, fault: Fault) -> AsyncIterator[bool]:
        way, whose = self._way(fault)
        way.cut(whose)
        yield True

    @asynccontextmanager
    async def _swallow(self, fault: Fault) -> AsyncIterator[bool]:
        """Everything, or only answers. What lost bytes is cut at the end: no network goes on after a gap."""
        way, whose = self._way(fault)
        way.suffers = whose
        way.once_said = COMMIT if fault.amount else b""
        way.swallow_to_client = True
        way.swallow_to_server = fault.kind is Kind.BLACK_HOLE
        try:
            yield True
        finally:
            way.cut(whose)
            way.black_hole(on=False)
            way.suffers = everybody
            way.once_said = b""
            way.spoken.clear()

    @asynccontextmanager
    async def _crash_postgres(self, fault: Fault) -> AsyncIterator[bool]:
        await self.stage.postgres.crash()
        self.kills[fault.target] += 1
        try:
            yield True
        finally:
            await self.stage.postgres.start()

    @asynccontextmanager
    async def _kill_backend(self, _fault: Fault) -> AsyncIterator[bool]:
        """One dies, and PostgreSQL throws everybody out and recovers, for the shared memory may be torn."""
        backends = self.stage.postgres.backends()
        if backends:
            with suppress(ProcessLookupError):
                kill(random.choice(backends), signal.SIGKILL)
            self.kills["postgres backend"] += 1
        yield bool(backends)

    @asynccontextmanager
    async def _end_session(self, _fault: Fault) -> AsyncIterator[bool]:
        try:
            connection = await asyncpg.connect(self.stage.postgres.url, timeout=10)
        except (OSError, asyncpg.PostgresError):
            # It is just recovering from something worse.
            yield False
            return
        try:
            ended = await connection.fetchval(
                """
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1
                """
            )
        finally:
            await connection.close()
        yield bool(ended)

    @asynccontextmanager
    async def _kill_broker(self, fault: Fault) -> AsyncIterator[bool]:
        broker = self.stage.broker
        assert broker is not None
        await broker.kill()
        self.kills[BROKER] += 1
        if fault.kind is Kind.BROKER_WIPE:
            await asyncio.to_thread(shutil.rmtree, broker.directory / "mnesia", ignore_errors=True)
        try:
            yield True
        finally:
            await broker.start()

    @asynccontextmanager
    async def _delete_queue(self, fault: Fault) -> AsyncIterator[bool]:
        """By mistake, with all that waits in it; nothing where nobody answers who could do it."""
        broker = self.stage.broker
        assert broker is not None
        deleted = False
        with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, AMQPException):
            connection = await asyncpg.connect(self.stage.postgres.url, timeout=10)
            try:
                worker_id = await connection.fetchval("SELECT id FROM attune.worker WHERE name = $1", fault.target)
            finally:
                connection.terminate()
            async with await aio_pika.connect(broker.url(), timeout=10) as link, link.channel() as channel:
                deleted = worker_id is not None
                if deleted:
                    await channel.queue_delete(worker_queues(worker_id, ttl_ms=1)[0].name)
        yield deleted

    @asynccontextmanager
    async def _order(self, fault: Fault) -> AsyncIterator[bool]:
        """What the library in every process can do: a wrong clock, slow syncs, a full disk."""
        shim = self.stage.shim
        assert isinstance(shim, Shim)
        if fault.kind is Kind.CLOCK_SKEW:
            shim.order(fault.target, clock_seconds=int(fault.amount))
        elif fault.kind is Kind.SLOW_SYNC:
            shim.order(POSTGRES, sync_seconds=fault.amount)
        else:
            folder = self.stage.platform.home / "run" / "work" / fault.target
            shim.order(fault.target, disk_full=int(fault.amount), folder=str(folder))
        try:
            yield True
        finally:
            shim.order(fault.target)

    @asynccontextmanager
    async def _let_loose(self, fault: Fault) -> AsyncIterator[bool]:
        """One that nobody came by in its time is closed again, so that nothing new happens when all is to be quiet."""
        record = self.stage.fired / fault.target
        record.unlink(missing_ok=True)
        try:
            yield True
        finally:
            if fault.seconds:
                record.touch()

    async def _lead(self, fault: Fault, begin: float) -> None:
        """Until it has fired, do again and again what brings a process there."""
        end = monotonic() + fault.seconds
        way = way_to(fault.target, POSTGRES if self.stage.broker is None else BROKER)
        again = end
        while monotonic() < end and not self.stage.has_fired(fault.target):
            if way is not None:
                target = random.choice(way.targets)
                step = Fault(kind=way.kind, target=target, at=0.0, seconds=way.seconds, amount=way.amount)
                await self._strike_at(step, begin)
                again = min(end, monotonic() + way.known_seconds)
            while monotonic() < again and not self.stage.has_fired(fault.target):
                await asyncio.sleep(LOOK_SECONDS)


def _length(fault: Fault) -> str:
    words = f" for {fault.seconds:.1f} s" if fault.seconds and fault.kind is not Kind.FAILPOINT else ""
    return words + (f" ({fault.amount:g})" if fault.amount else "")
