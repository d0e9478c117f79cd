"""A running executor inside the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

from attune.executor.service import Executor
from attune.executor.sweeps import SweepSettings
from attune.runtime.metrics import Metrics, build_metrics
from attune.runtime.supervise import Tasks
from attune.storage.database import Database
from attune.transport.limits import Limits
from attune.transport.postgres import PostgresTransport
from attune.transport.protocol import Transport
from attune.transport.topology import EXECUTOR_QUEUES, dead_letter_queue


@asynccontextmanager
async def executor(
    database: Database,
    name: str = "executor-1",
    *,
    transport: Transport | None = None,
    metrics: Metrics | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[None]:
    """A replica in this process; without a transport the database is one."""
    transport = transport or PostgresTransport(database)
    database.after_commit = transport.after_commit
    service = Executor(
        name=name,
        instance=uuid4(),
        database=database,
        transport=transport,
        queues=(*EXECUTOR_QUEUES, dead_letter_queue(ttl_ms=86_400_000)),
        limits=limits or Limits(),
        max_queue_length=10_000,
        sweep_settings=SweepSettings(
            heartbeat_interval=0.4,
            scheduled_timeout=300,
            timeout_check_interval=60,
            placements_max=5,
            history_days=7,
            dead_letter_seconds=86_400,
            pinned_ttl_seconds=None,
            idempotency_hours=24,
            queue_timeout_seconds=3600,
            # Workers of tests have no process that could answer.
            health_check_interval=600,
        ),
        metrics=metrics or build_metrics(version="test", service="executor"),
    )
    async with Tasks() as tasks:
        running = asyncio.ensure_future(service.run(tasks))
        try:
            yield
        finally:
            tasks.stop.set()
            await running
