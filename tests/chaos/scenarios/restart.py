"""Everything is killed at once while thousands wait, and started again together; then the witnesses are asked."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import asyncpg
import httpx2

from tests.witness.ledger import Ledger, ledger_command
from tests.witness.platform import Platform
from tests.witness.scale import scaled
from tests.witness.waiting import until

SERVICES = ("api", "executor", "worker")
OPTIONS = ("--scale", "executor=2", "--scale", "worker=2")
POOL = 10
SETTINGS = {"ATTUNE__DATABASE__POOL_SIZE": str(POOL)}
LIMIT = 24
BATCH = 1000
# The fewer there are, the longer each: most shall still wait when everything is killed.
WORK_SECONDS = scaled(short=400, full=20) / 1000
BACK_SECONDS = 120.0
FINISH_SECONDS = 900.0
SAMPLE_SECONDS = 0.05
# Beside its pool a process has connections of its own: for notices, heartbeats, and a leader's work.
CONNECTIONS_BESIDE = 4


@dataclass(slots=True, kw_only=True)
class Restart:
    """What the database and the ledger say afterwards."""

    executions: int
    killed: int = 0
    waiting_when_killed: int = 0
    placed_when_killed: int = 0
    back_seconds: float = 0.0
    recovery_seconds: float = 0.0
    statuses: Mapping[str, int] = field(default_factory=dict)
    attempts: Mapping[int, int] = field(default_factory=dict)
    doubled_starts: list[tuple[int, int]] = field(default_factory=list)
    connections_before: int = 0
    connections_max: int = 0
    connections_bound: int = 0

    @property
    def violations(self) -> list[str]:
        """Everything that breaks the promise."""
        found = []
        if self.waiting_when_killed < self.executions // 2:
            found.append(f"only {self.waiting_when_killed} still waited when everything was killed")
        if dict(self.statuses) != {"succeeded": self.executions}:
            found.append(f"not all succeeded: {self.statuses}")
        if self.doubled_starts:
            found.append(f"started twice in one attempt: {self.doubled_starts}")
        again = sum(count for attempt, count in self.attempts.items() if attempt > 1)
        if again > self.placed_when_killed:
            found.append(f"{again} were placed again, {self.placed_when_killed} were on a worker")
        if max(self.attempts) > len(SERVICES):
            found.append(f"placed again and again: {self.attempts}")
        if self.connections_max > self.connections_bound:
            found.append(f"{self.connections_max} connections, at most {self.connections_bound} are allowed for")
        return found


def write_pack(folder: Path, ledger: Path) -> None:
    """A pack with one action that tells the ledger when it starts and ends, and a limit, so that thousands wait."""
    (folder / "actions").mkdir(parents=True)
    (folder / "policies").mkdir()
    (folder / "pack.yaml").write_text("ref: chaos\nversion: 1.0.0\n")
    command = ledger_command(ledger, body=f"sleep {WORK_SECONDS}")
    (folder / "actions" / "work.yaml").write_text(
        "ref: chaos.work\nrunner: shell\nidempotent: true\ncommand: |\n"
        + "".join(f"  {line}\n" for line in command.splitlines())
    )
    (folder / "policies" / "work.yaml").write_text(
        f"ref: chaos.limit\nscope: {{action: chaos.work}}\nconcurrency: {{limit: {LIMIT}}}\nmax_queue_length: 100000\n"
    )


async def run_restart(platform: Platform, executions: int) -> Restart:
    """Let thousands wait, kill every service at once, and watch how everything comes back."""
    ledger = Ledger(platform.home / "ledger.txt")
    ledger.create()
    write_pack(platform.home / "chaos-pack", ledger.path)
    await platform.run("pack", "install", str(platform.home / "chaos-pack"))
    url = (await platform.run("db", "url")).out.strip()
    outcome = Restart(executions=executions)
    async with asyncpg.create_pool(url, min_size=2, max_size=2, server_settings={"application_name": "witness"}) as db:
        async with platform.client() as client:
            await _request(client, executions)
        old = await _kill_everything(platform, db, outcome)
        watching = asyncio.create_task(_watch_connections(db, outcome))
        began = monotonic()
        try:
            await until(lambda: _are_back(platform, old), seconds=BACK_SECONDS)
            outcome.back_seconds = monotonic() - began
            await until(lambda: _all_ended(db), seconds=FINISH_SECONDS)
        finally:
            watching.cancel()
        outcome.recovery_seconds = monotonic() - began
        outcome.statuses = dict(map(tuple, await db.fetch("SELECT status, count(*) FROM attune.execution GROUP BY 1")))
        outcome.attempts = dict(map(tuple, await db.fetch("SELECT attempt, count(*) FROM attune.execution GROUP BY 1")))
    outcome.doubled_starts = ledger.doubled_starts()
    return outcome


async def _request(client: httpx2.AsyncClient, executions: int) -> None:
    for start in range(0, executions, BATCH):
        size = min(BATCH, executions - start)
        body = {"executions": [{"action_ref": "chaos.work", "parameters": {}}] * size}
        (await client.post("/api/v1/executions:batch", json=body)).raise_for_status()


async def _kill_everything(platform: Platform, db: asyncpg.Pool, outcome: Restart) -> dict[str, int]:
    """SIGKILL to every service; returns who they were."""
    running = await platform.processes()
    victims = {name: pid for name, pid in running.items() if name.rpartition("-")[0] in SERVICES}
    outcome.connections_before = await _count_connections(db)
    for pid in victims.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    outcome.killed = len(victims)
    outcome.connections_bound = len(running) * (POOL + CONNECTIONS_BESIDE)
    outcome.waiting_when_killed = await db.fetchval("SELECT count(*) FROM attune.execution WHERE status = 'queued'")
    outcome.placed_when_killed = await db.fetchval("SELECT count(*) FROM attune.assignment")
    return victims


async def _are_back(platform: Platform, old: Mapping[str, int]) -> bool:
    now = await platform.processes()
    return all(name in now and now[name] != pid for name, pid in old.items())


async def _all_ended(db: asyncpg.Pool) -> bool:
    return not await db.fetchval("SELECT EXISTS (SELECT 1 FROM attune.execution WHERE ended_at IS NULL)")


async def _watch_connections(db: asyncpg.Pool, outcome: Restart) -> None:
    while True:
        outcome.connections_max = max(outcome.connections_max, await _count_connections(db))
        await asyncio.sleep(SAMPLE_SECONDS)


async def _count_connections(db: asyncpg.Pool) -> int:
    return int(
        await db.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'witness'"
        )
    )
