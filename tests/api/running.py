"""A real API on a free port, with a real database behind it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx2

from attune.api.app import create_app
from attune.api.parts import ApiLimits, ApiParts, Check
from attune.api.serve import serve_api
from attune.domain.definition_documents import action_from_mapping
from attune.domain.definitions import PackDefinition
from attune.operations.access.bootstrap_admin import bootstrap_admin
from attune.operations.access.create_token import TokenRequest, create_token
from attune.operations.access.write_audit import Actor
from attune.operations.install_pack import install_pack
from attune.runtime.metrics import build_metrics
from attune.runtime.passwords import hash_password
from attune.runtime.vault import WITHOUT_KEY, Vault
from attune.storage.access import identities
from attune.storage.database import Database

PASSWORD = "correct horse battery staple"
TESTER = Actor(name="test")
START_SECONDS_MAX = 10.0
# Most tests of the API ask for executions without any worker to run them.
PATIENT = ApiLimits(no_worker_grace_seconds=3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A served API, and a client for each kind of person."""

    url: str
    admin: httpx2.AsyncClient
    viewer: httpx2.AsyncClient
    stranger: httpx2.AsyncClient
    database: Database
    stop: asyncio.Event


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def serving(
    database: Database,
    store: Path,
    *,
    limits: ApiLimits | None = None,
    checks: Mapping[str, Check] | None = None,
    vault: Vault = WITHOUT_KEY,
) -> AsyncIterator[Api]:
    """Serve until the block ends."""
    admin, viewer = await people(database)
    parts = ApiParts(
        database=database,
        metrics=build_metrics(version="0", service="api"),
        version="0",
        pack_store=store,
        limits=limits or PATIENT,
        checks=checks or {},
        vault=vault,
    )
    port, stop = free_port(), asyncio.Event()
    server = asyncio.create_task(serve_api(create_app(parts), host="127.0.0.1", port=port, stop=stop))
    url = f"http://127.0.0.1:{port}"
    try:
        async with client(url, admin) as a, client(url, viewer) as v, client(url, None) as s:
            await until_alive(s, server)
            yield Api(url=url, admin=a, viewer=v, stranger=s, database=database, stop=stop)
    finally:
        stop.set()
        await server


def client(url: str, token: str | None) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30)


async def until_alive(stranger: httpx2.AsyncClient, server: asyncio.Task[None]) -> None:
    async with asyncio.timeout(START_SECONDS_MAX):
        while True:
            try:
                await stranger.get("/healthz")
            except httpx2.ConnectError:
                if server.done():
                    await server
                await asyncio.sleep(0.01)
            else:
                return


@cache
def password_hash() -> str:
    """Hashing is slow on purpose; once is enough for all tests."""
    return hash_password(PASSWORD)


async def people(database: Database) -> tuple[str, str]:
    """The first administrator's token, and one of the same identity that may only look."""
    hashed = password_hash()
    async with database.transaction() as tx:
        first = await bootstrap_admin(tx, login="admin", password_hash=hashed, token_name="cli", by=TESTER)
        assert first is not None
        identity = await identities.find_by_login(tx, "admin")
        assert identity is not None
        wanted = TokenRequest(identity=identity.id, name="viewer", permission_set="viewer")
        narrowed = await create_token(tx, wanted, by=TESTER)
    return first.token_secret, narrowed.secret


async def install_demo(database: Database) -> None:
    """A pack with one action that takes a number, and one that takes anything."""
    counting = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "host": {"type": "string"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    actions = [
        action_from_mapping({"ref": "demo.count", "runner": "shell", "command": "true", "parameters": counting}),
        action_from_mapping({"ref": "demo.anything", "runner": "shell", "command": "true"}),
    ]
    pack = PackDefinition(ref="demo", version="1.0.0", actions=tuple(actions))
    async with database.transaction() as tx:
        await install_pack(tx, pack, digest="0" * 64, source="test", by=TESTER)
