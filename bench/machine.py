"""What the machine can do just before the peers are measured, in the same figures as before our own workloads."""

from __future__ import annotations

from dataclasses import asdict

from attune.cli.bench.machine import look_at_machine
from attune.storage.database import Database
from bench.peers.servers import durable_postgres


async def look_before_peers() -> dict[str, object]:
    """On a PostgreSQL that nobody else uses."""
    async with durable_postgres() as server:
        await server.ensure_database("peer")
        database = await Database.connect(server.url_of("peer"), size=1, application="attune bench")
        try:
            return {"before": "peers", **asdict(await look_at_machine(server.plan.home, database))}
        finally:
            await database.close()
