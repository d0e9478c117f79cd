"""A worker as a process of its own, for tests that stop, pause and kill it: `python process.py PLAN`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from attune.runtime.failpoints import arm_from_environment
from attune.runtime.metrics import build_metrics
from attune.runtime.supervise import Tasks, run_service
from attune.storage.database import Database
from attune.worker.plan import WorkerParts, WorkerPlan
from attune.worker.service import run_worker
from tests.transport.station import build_transport


async def serve(tasks: Tasks, url: str, broker_url: str, plan: WorkerPlan) -> None:
    database = await Database.connect(url, size=5)
    transport = build_transport(database, broker_url)
    database.after_commit = transport.after_commit
    carrying = tasks.start("transport", transport.run)
    metrics = build_metrics(version="test", service="worker")
    try:
        await run_worker(WorkerParts(plan=plan, database=database, transport=transport, metrics=metrics), tasks)
    finally:
        carrying.cancel()
        await database.close()


def main() -> int:
    arm_from_environment(os.environ)
    told = msgspec.json.decode(sys.argv[1])
    plan = WorkerPlan(
        name=told["name"],
        home=Path(told["home"]),
        packs=Path(told["home"]) / "packs",
        scratch=Path(told["home"]) / "scratch" / str(os.getpid()),
        capacity=told.get("capacity", 4),
        heartbeat_seconds=told["heartbeat_seconds"],
        shutdown_seconds=5,
        queue_ttl_ms=60_000,
        version="test",
        grace_seconds=0.5,
        container=told.get("container", "off"),
    )
    return run_service(
        lambda tasks: serve(tasks, told["url"], told.get("broker_url", ""), plan), loop_factory=asyncio.new_event_loop
    )


if __name__ == "__main__":
    sys.exit(main())
