"""What peers keep their messages in: a RabbitMQ, and a PostgreSQL with the programs and settings of our own."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from attune.runtime.postgres_server import PostgresServer, ServerPlan
from bench.peers.catalogue import Peer, Server
from tests.witness.servers import start_rabbitmq


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Somewhere a peer finds nothing of anybody else's, and the processes that serve it there."""

    url: str
    pids: Mapping[str, int]


@asynccontextmanager
async def serve_peer(peer: Peer) -> AsyncIterator[Place]:
    """A server of its own for the time it is measured."""
    if peer.server is Server.RABBITMQ:
        async with start_rabbitmq() as broker:
            yield Place(url=broker.url(), pids={"rabbitmq": broker.processes[-1].pid})
        return
    async with durable_postgres() as server:
        await server.ensure_database("peer")
        url = server.url_of("peer")
        if peer.name == "prefect":
            url = url.replace("postgresql://", "postgresql+asyncpg://", 1)
        yield Place(url=url, pids={"postgres": server.pid or 0})


@asynccontextmanager
async def durable_postgres() -> AsyncIterator[PostgresServer]:
    """As `attune up` starts it: every commit waits for the disk."""
    home = _make_home()
    plan = ServerPlan(home=home, data=home / "data", log=home / "postgres.log", password=secrets.token_hex(16))
    server = PostgresServer(plan)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        shutil.rmtree(home, ignore_errors=True)


def _make_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="attune-peer-"))
    # The account that PostgreSQL runs as under root must be able to come in.
    home.chmod(0o755)
    return home
