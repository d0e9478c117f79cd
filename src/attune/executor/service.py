"""The executor: consumes what others announce, places executions, and sweeps for what went wrong."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from attune.domain.endings.dead_letters import EXPIRED_REASON, Outcome
from attune.domain.messages import DEAD_TOPIC
from attune.executor.routing import DEAD_LETTER_TYPES, Burial, dead_letter_handler, handler_of, operations_by_type
from attune.executor.sweeps import SweepSettings, repeat, sweeps
from attune.executor.watches import watches
from attune.runtime.clock import draw, utc_now
from attune.runtime.failpoints import afailpoint
from attune.runtime.metrics import Metrics
from attune.runtime.supervise import Restart, Tasks
from attune.storage import executor_replicas
from attune.storage.database import Database, may_work_later
from attune.transport.consume import Handler, Tally, consume
from attune.transport.limits import Limits
from attune.transport.protocol import Transport
from attune.transport.topology import Queue

HEARTBEAT_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """One replica; any number may run."""

    name: str
    instance: UUID
    database: Database
    transport: Transport
    queues: tuple[Queue, ...]
    limits: Limits
    max_queue_length: int
    sweep_settings: SweepSettings
    metrics: Metrics

    async def run(self, tasks: Tasks) -> None:
        """Work until told to stop."""
        tasks.start("transport", self.transport.run, restart=Restart())
        await self.transport.declare(self.queues)
        for queue in self.queues:
            tasks.start(f"consume {queue.name}", partial(self._consume, queue), restart=Restart())
        watched = watches(max_queue_length=self.max_queue_length, metrics=self.metrics)
        for sweep in (*sweeps(self.sweep_settings, draw=draw), *watched):
            tasks.start(
                f"sweep {sweep.name}",
                partial(repeat, sweep, self.database, metrics=self.metrics, draw=draw),
                restart=Restart(),
            )
        tasks.start("heartbeat", self._beat, restart=Restart())
        await tasks.stop.wait()
        await self._leave()

    async def _consume(self, queue: Queue) -> None:
        handler, types = self._handler_of(queue)
        tally = Tally(metrics=self.metrics)
        async with self.transport.consume(queue, self.limits) as source:
            await consume(self.database, source, handler, self.limits, tally=tally, types=types)

    def _handler_of(self, queue: Queue) -> tuple[Handler, Collection[str]]:
        if DEAD_TOPIC in queue.topics:
            placements_max = self.sweep_settings.placements_max
            return dead_letter_handler(placements_max=placements_max, tell=self._count), DEAD_LETTER_TYPES
        operations = operations_by_type(actor=self.name, max_queue_length=self.max_queue_length, draw=draw)
        return handler_of(operations), operations.keys()

    def _count(self, burial: Burial) -> None:
        now = utc_now()
        self.metrics.dead_letters.labels(reason=EXPIRED_REASON).inc(len(burial.outcomes))
        self.metrics.executions_failed_by_dead_letter.inc(burial.outcomes.count(Outcome.FAILED_EXECUTION))
        for died_at in burial.died_at:
            # The broker's clock may differ from ours.
            self.metrics.dead_letter_latency_seconds.observe(max(0.0, (now - died_at).total_seconds()))
        structlog.get_logger().warning("dead_letters.buried", **Counter(map(str, burial.outcomes)))

    async def _beat(self) -> None:
        while True:
            try:
                await afailpoint("executor.beat")
                async with self.database.transaction() as tx:
                    await executor_replicas.beat(tx, self.name, self.instance)
            except Exception as error:
                if not may_work_later(error):
                    raise
                structlog.get_logger().warning("heartbeat.put_off", error=str(error))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _leave(self) -> None:
        await afailpoint("executor.leave")
        try:
            async with self.database.transaction() as tx:
                await executor_replicas.delete(tx, self.instance)
        except Exception as error:
            if not may_work_later(error):
                raise
            # Others see by its silence that it is gone.
            structlog.get_logger().warning("executor.left_unheard", error=str(error))
