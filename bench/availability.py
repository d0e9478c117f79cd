"""Measures what becomes of work when workers die, drain, or take nothing.

    python -m bench.availability [--transport rabbitmq] [--repeat 3]

A platform of its own with a heartbeat of one second; the document is printed, and kept in bench/results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import asyncpg
import httpx2

from tests.witness.platform import Platform, running_platform
from tests.witness.servers import start_rabbitmq
from tests.witness.waiting import until

RESULTS = Path(__file__).parent / "results"
TTL_SECONDS = 2.0
SETTINGS = {
    "ATTUNE__WORKER__CAPACITY": "64",
    "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": str(int(TTL_SECONDS * 1000)),
}
KILLED = 20
DRAINED = (8, 32)
# Long enough that all of them run before the first ends.
SHORT_SECONDS = 3.0
EXPIRED = 200
NOBODY = 999
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A platform under measurement, and the ways to reach it."""

    platform: Platform
    client: httpx2.AsyncClient
    database: asyncpg.Pool

    async def request(self, ref: str, count: int, **more: object) -> list[int]:
        body = {"executions": [{"action_ref": ref, "parameters": {}, **more}] * count}
        answer = (await self.client.post("/api/v1/executions:batch", json=body)).raise_for_status()
        return [each["id"] for each in answer.json()["executions"]]

    async def cancel(self, execution: int) -> None:
        """Stop it by force; while the answer is that it may work later, ask again."""

        async def answered() -> bool:
            path = f"/api/v1/executions/{execution}/cancel"
            answer = await self.client.post(path, params={"force": "true"})
            return answer.is_success or answer.status_code != httpx2.codes.SERVICE_UNAVAILABLE

        await until(answered, seconds=PATIENCE_SECONDS)

    async def until_all(self, ids: Sequence[int], condition: str) -> None:
        """Wait until this is true of every one of them."""

        async def reached() -> bool:
            statement = f"SELECT count(*) FROM attune.execution WHERE id = ANY($1) AND {condition}"  # noqa: S608  ours
            return bool(await self.database.fetchval(statement, ids) == len(ids))

        await until(reached, seconds=PATIENCE_SECONDS)

    async def seconds(self, column: str, ids: Sequence[int]) -> list[float]:
        statement = f"SELECT extract(epoch FROM {column})::float8 FROM attune.execution WHERE id = ANY($1)"  # noqa: S608  ours
        return [row[0] for row in await self.database.fetch(statement, ids)]

    async def scale(self, workers: int) -> list[tuple[str, int]]:
        """Have so many workers and nobody else; returns their names and ids."""
        await self.platform.run("scale", f"worker={workers}")
        found: list[tuple[str, int]] = []

        async def so() -> bool:
            rows = await self.database.fetch(
                "SELECT name, id, status FROM attune.worker WHERE status NOT IN ('inactive', 'lost') ORDER BY id"
            )
            found[:] = [(row["name"], row["id"]) for row in rows]
            return [row["status"] for row in rows] == ["active"] * workers

        await until(so, seconds=PATIENCE_SECONDS)
        return found


def spread(seconds: Sequence[float]) -> dict[str, float | int]:
    """What is told of a sample."""
    cut = quantiles(seconds, n=100, method="inclusive")
    told = {"p50": cut[49], "p99": cut[98], "max": max(seconds)}
    return {"samples": len(seconds), **{name: round(value, 3) for name, value in told.items()}}


async def measure_kills(bench: Bench, repeat: int) -> dict[str, float | int]:
    """From SIGKILL of a worker to each of its executions running again, which its lease decides."""
    seconds: list[float] = []
    for _ in range(repeat):
        [(doomed, _)] = await bench.scale(1)
        ids = await bench.request("bench.long", KILLED)
        await bench.until_all(ids, "status = 'running'")
        await bench.scale(2)
        pid = (await bench.platform.processes())[doomed]
        killed_at = await bench.database.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
        os.kill(pid, signal.SIGKILL)
        await bench.until_all(ids, "attempt = 2 AND status = 'running'")
        seconds += [started - killed_at for started in await bench.seconds("started_at", ids)]
        for execution in ids:
            await bench.cancel(execution)
        await bench.until_all(ids, "ended_at IS NOT NULL")
        # After three losses in a row it would be held.
        await bench.platform.run("action", "release", "bench.long")
    return spread(seconds)


async def measure_drain(bench: Bench, running: int) -> dict[str, float | int]:
    """From asking for a drain to the end of the last, and how much of that was the drain's own."""
    [(_, worker)] = await bench.scale(1)
    ids = await bench.request("bench.short", running)
    await bench.until_all(ids, "status = 'running'")
    asked_at = await bench.database.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    (await bench.client.post(f"/api/v1/workers/{worker}/drain")).raise_for_status()
    await bench.until_all(ids, "ended_at IS NOT NULL")

    async def emptied() -> bool:
        return not await bench.database.fetchval("SELECT count(*) FROM attune.assignment WHERE worker_id = $1", worker)

    await until(emptied)
    ended_at, lasted = await bench.seconds("ended_at", ids), await bench.seconds("ended_at - started_at", ids)
    (await bench.client.post(f"/api/v1/workers/{worker}/uncordon")).raise_for_status()
    return {
        "running": running,
        "action_seconds": SHORT_SECONDS,
        "drained_seconds": round(max(ended_at) - asked_at, 3),
        "longest_action_seconds": round(max(lasted), 3),
    }


async def measure_expiry(bench: Bench, worker: int) -> dict[str, float | int]:
    """From the end of a dispatch's time to live to the end of its execution."""
    ids = await bench.request("bench.short", EXPIRED, worker_id=worker)
    await bench.until_all(ids, "status = 'failed'")
    return spread([each - TTL_SECONDS for each in await bench.seconds("ended_at - scheduled_at", ids)])


async def measure(bench: Bench, transport: str, repeat: int) -> dict[str, object]:
    """Everything, on one platform."""
    kills = await measure_kills(bench, repeat)
    drains = [await measure_drain(bench, running) for running in DRAINED]
    [(_, worker)] = await bench.scale(1)
    # Its queue outlives it; what is sent there now expires.
    await bench.scale(0)
    return {
        "transport": transport,
        "heartbeat_seconds": 1.0,
        "killed_to_running_elsewhere_seconds": kills,
        "drain": drains,
        "dispatch_expired_to_failed_seconds": {
            "ttl_seconds": TTL_SECONDS,
            "stopped_worker": await measure_expiry(bench, worker),
            "worker_that_never_was": await measure_expiry(bench, NOBODY),
        },
    }


def write_pack(folder: Path) -> None:
    """An action that outlasts the measurement, and one that ends soon."""
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text("ref: bench\nversion: 1.0.0\n")
    for name, seconds in (("long", 600.0), ("short", SHORT_SECONDS)):
        (folder / "actions" / f"{name}.yaml").write_text(
            f"ref: bench.{name}\nrunner: shell\nidempotent: true\ncommand: sleep {seconds}\n"
        )


async def run(transport: str, repeat: int) -> dict[str, object]:
    """A platform for the measurement, gone afterwards."""
    async with AsyncExitStack() as stack:
        settings = dict(SETTINGS)
        if transport == "rabbitmq":
            broker = await stack.enter_async_context(start_rabbitmq())
            settings["ATTUNE__MESSAGE_QUEUE__URL"] = broker.url()
        platform = await stack.enter_async_context(running_platform(settings=settings))
        write_pack(platform.home / "bench-pack")
        await platform.run("pack", "install", str(platform.home / "bench-pack"))
        url = (await platform.run("db", "url")).out.strip()
        client = await stack.enter_async_context(platform.client())
        database = await stack.enter_async_context(asyncpg.create_pool(url, min_size=1, max_size=2))
        return await measure(Bench(platform=platform, client=client, database=database), transport, repeat)


def main() -> None:
    """Measure, keep, show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", default="postgres", choices=["postgres", "rabbitmq"])
    parser.add_argument("--repeat", type=int, default=3, help="how often a worker is killed")
    chosen = parser.parse_args()
    page = json.dumps(asyncio.run(run(chosen.transport, chosen.repeat)), indent=2) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"availability-{chosen.transport}.json").write_text(page)
    print(page, end="")


if __name__ == "__main__":
    main()
