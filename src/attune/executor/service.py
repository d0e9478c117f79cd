"""The executor: consumes what others announce, places executions, and sweeps for what went wrong."""

import asyncio
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from attune.domain.messages import DEAD_TOPIC
from attune.executor.routing import dead_letter_operations, handler_of, operations_by_type
from attune.executor.sweeps import SweepSettings, repeat, sweeps
from attune.runtime.clock import draw
from attune.runtime.metrics import Metrics
from attune.runtime.supervise import Restart, Tasks
from attune.storage import executor_replicas
from attune.storage.database import Database, may_work_later
from attune.transport.consume import Tally, consume
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
        for sweep in sweeps(self.sweep_settings, draw=draw):
            tasks.start(
                f"sweep {sweep.name}",
                partial(repeat, sweep, self.database, metrics=self.metrics, draw=draw),
                restart=Restart(),
            )
        tasks.start("heartbeat", self._beat, restart=Restart())
        await tasks.stop.wait()
        await self._leave()

    async def _consume(self, queue: Queue) -> None:
        if DEAD_TOPIC in queue.topics:
            operations = dead_letter_operations(placements_max=self.sweep_settings.placements_max)
        else:
            operations = operations_by_type(actor=self.name, max_queue_length=self.max_queue_length, draw=draw)
        async with self.transport.consume(queue, self.limits) as source:
            tally = Tally(metrics=self.metrics)
            await consume(
                self.database, source, handler_of(operations), self.limits, tally=tally, types=operations.keys()
            )

    async def _beat(self) -> None:
        while True:
            try:
                async with self.database.transaction() as tx:
                    await executor_replicas.beat(tx, self.name, self.instance)
            except Exception as error:
                if not may_work_later(error):
                    raise
                structlog.get_logger().warning("heartbeat.put_off", error=str(error))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _leave(self) -> None:
        async with self.database.transaction() as tx:
            await executor_replicas.delete(tx, self.instance)
