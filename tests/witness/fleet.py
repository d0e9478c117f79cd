"""An executor with short settings and real worker processes, on either transport, to be stopped, hung and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec

from attune.executor.service import Executor
from attune.executor.sweeps import SweepSettings
from attune.runtime.metrics import build_metrics
from attune.runtime.supervise import Tasks
from attune.storage.database import Database
from attune.transport.limits import Limits
from attune.transport.topology import EXECUTOR_QUEUES, dead_letter_queue
from attune.worker.processes import Marking, end_all, find_marked
from tests.transport.station import build_transport
from tests.witness.arrange import statuses
from tests.witness.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PROCESS = ROOT / "tests" / "worker" / "process.py"
HEARTBEAT_SECONDS = 1.0
HEALTH_SECONDS = 1.0
SCHEDULED_TIMEOUT_SECONDS = 3.0
SETTINGS = SweepSettings(
    heartbeat_interval=HEARTBEAT_SECONDS,
    scheduled_timeout=SCHEDULED_TIMEOUT_SECONDS,
    timeout_check_interval=0.5,
    placements_max=5,
    history_days=7,
    dead_letter_seconds=86_400,
    pinned_ttl_seconds=None,
    idempotency_hours=24,
    queue_timeout_seconds=3600,
    health_check_interval=HEALTH_SECONDS,
)


@dataclass(kw_only=True)
class Fleet:
    """What a test has at hand."""

    database: Database
    database_url: str
    broker_url: str
    home: Path
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    async def start_worker(
        self, name: str = "worker-1", *, capacity: int = 4, failpoints: str = ""
    ) -> asyncio.subprocess.Process:
        """A worker as a process; returns when it has registered."""
        told = {
            "name": name,
            "home": str(self.home),
            "url": self.database_url,
            "broker_url": self.broker_url,
            "heartbeat_seconds": HEARTBEAT_SECONDS,
            "capacity": capacity,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROCESS),
            msgspec.json.encode(told).decode(),
            env={"PYTHONPATH": f"{ROOT}/src:{ROOT}", "PATH": os.environ["PATH"], "ATTUNE_FAILPOINTS": failpoints},
        )
        self.processes.append(process)
        self.names.add(name)

        async def registered() -> bool:
            async with self.database.reading() as tx:
                return bool(await tx.fetch_value("SELECT count(*) FROM worker WHERE pid = $1", process.pid))

        await until(registered)
        return process

    async def until_all(self, ids: Sequence[int], status: str, *, seconds: float = 60.0) -> None:
        """Wait until every one of these has this status."""

        async def reached() -> bool:
            return set(await statuses(self.database, ids)) == {status}

        await until(reached, seconds=seconds)

    async def until_worker(self, name: str, status: str, *, seconds: float = 60.0) -> None:
        """Wait until this worker has this status."""

        async def reached() -> bool:
            async with self.database.reading() as tx:
                return bool(await tx.fetch_value("SELECT status = $2 FROM worker WHERE name = $1", name, status))

        await until(reached, seconds=seconds)


@asynccontextmanager
async def running_fleet(database: Database, database_url: str, broker_url: str, home: Path) -> AsyncIterator[Fleet]:
    """An executor for as long as the block lasts; whatever was started is gone afterwards."""
    transport = build_transport(database, broker_url)
    database.after_commit = transport.after_commit
    service = Executor(
        name="executor-1",
        instance=uuid4(),
        database=database,
        transport=transport,
        queues=(*EXECUTOR_QUEUES, dead_letter_queue(ttl_ms=86_400_000)),
        limits=Limits(),
        max_queue_length=10_000,
        sweep_settings=SETTINGS,
        metrics=build_metrics(version="test", service="executor"),
    )
    fleet = Fleet(database=database, database_url=database_url, broker_url=broker_url, home=home)
    async with Tasks() as tasks:
        running = asyncio.ensure_future(service.run(tasks))
        try:
            yield fleet
        finally:
            await _end(fleet)
            tasks.stop.set()
            await running


async def _end(fleet: Fleet) -> None:
    for process in fleet.processes:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await process.wait()
    for name in fleet.names:
        prefix = Marking(home=fleet.home, worker=name, instance=uuid4()).worker_prefix
        await end_all(partial(find_marked, prefix))
