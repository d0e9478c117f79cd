"""Runners on their own, and whole workers on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from attune.domain.definitions import Isolation
from attune.runtime.metrics import build_metrics
from attune.runtime.supervise import Tasks
from attune.runtime.vault import WITHOUT_KEY, Vault
from attune.storage.database import Database
from attune.transport.postgres import PostgresTransport
from attune.worker.isolation import Confinement
from attune.worker.launcher.client import Launcher
from attune.worker.launcher.order import Walls
from attune.worker.machine import watch_children_by_descriptor
from attune.worker.plan import WorkerParts, WorkerPlan
from attune.worker.processes import Children, Marking, become_subreaper
from attune.worker.runners.native import NativeRunner
from attune.worker.runners.script import ScriptPlan, ScriptRunner
from attune.worker.runners.shell import ShellLanguage
from attune.worker.service import Worker, start_worker

StartWorker = Callable[..., Awaitable[Worker]]


@pytest.fixture(autouse=True)
async def _children_are_watched_as_in_the_service() -> None:
    watch_children_by_descriptor()


@pytest.fixture
def children() -> Children:
    become_subreaper()
    return Children()


@pytest.fixture
def launcher_flags() -> list[str]:
    return []


@pytest.fixture
async def launcher(children: Children, launcher_flags: list[str]) -> AsyncIterator[Launcher]:
    started = Launcher(children, flags=launcher_flags)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def shell(tmp_path: Path, packs: Path, marking: Marking, children: Children, launcher: Launcher) -> ScriptRunner:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return ScriptRunner(
        ScriptPlan(
            scratch=scratch,
            marking=marking,
            children=children,
            launcher=launcher,
            confinement=Confinement(usual=Isolation.NONE, walls={Isolation.NONE: Walls()}),
            grace_seconds=0.5,
        ),
        ShellLanguage(packs),
    )


@pytest.fixture
def native() -> NativeRunner:
    return NativeRunner()


def make_plan(tmp_path: Path, packs: Path, /, **changes: object) -> WorkerPlan:
    values: dict[str, object] = {
        "name": "worker-1",
        "home": tmp_path,
        "packs": packs,
        "scratch": tmp_path / f"scratch-{uuid4().hex}",
        "capacity": 4,
        "heartbeat_seconds": 1.0,
        "shutdown_seconds": 5.0,
        "queue_ttl_ms": 60_000,
        "version": "test",
        "grace_seconds": 0.5,
    }
    return WorkerPlan(**(values | changes))  # type: ignore[arg-type]  # each has its field's type


@asynccontextmanager
async def _running(database: Database, plan: WorkerPlan, vault: Vault) -> AsyncIterator[Worker]:
    transport = PostgresTransport(database)
    database.after_commit = transport.after_commit
    async with Tasks() as tasks:
        tasks.start("transport", transport.run)
        metrics = build_metrics(version="test", service="worker")
        parts = WorkerParts(plan=plan, database=database, transport=transport, metrics=metrics, vault=vault)
        worker = await start_worker(parts, tasks)
        try:
            yield worker
        finally:
            await worker.end()


@pytest.fixture
async def start_worker_here(database: Database, tmp_path: Path, packs: Path) -> AsyncIterator[StartWorker]:
    """Starts workers in this process; at the end they are gone, with everything they ran."""
    async with AsyncExitStack() as stack:

        async def begin(vault: Vault = WITHOUT_KEY, **changes: object) -> Worker:
            return await stack.enter_async_context(_running(database, make_plan(tmp_path, packs, **changes), vault))

        yield begin
    await asyncio.sleep(0)
