"""A real PostgreSQL for each test process, and a freshly migrated database for each test that asks."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from attune.runtime.postgres_server import PostgresServer, ServerPlan
from attune.storage.database import Database
from attune.storage.migrate import migrate

TEMPLATE = "attune_template"


@pytest.fixture(scope="session")
async def postgres_server() -> AsyncIterator[PostgresServer]:
    """The embedded server, without the waits for the disk that only a crash of the machine would need."""
    home = Path(tempfile.mkdtemp(prefix="attune-pg-"))
    # The account that PostgreSQL runs as under root must be able to come in.
    home.chmod(0o755)
    plan = ServerPlan(
        home=home, data=home / "data", log=home / "postgres.log", password=secrets.token_hex(16), durable=False
    )
    server = PostgresServer(plan)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
async def template_database(postgres_server: PostgresServer) -> str:
    """A database with the schema, to be cloned: 50 ms instead of a migration."""
    await postgres_server.ensure_database(TEMPLATE)
    await migrate(postgres_server.url_of(TEMPLATE))
    return TEMPLATE


@pytest.fixture
async def empty_database_url(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The address of a database without any schema."""
    async for url in _created(postgres_server, template="template1"):
        yield url


@pytest.fixture
async def database_url(postgres_server: PostgresServer, template_database: str) -> AsyncIterator[str]:
    """The address of a migrated database that no other test sees."""
    async for url in _created(postgres_server, template=template_database):
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A pool of connections to this test's own database."""
    database = await Database.connect(database_url, size=10, application="attune-test")
    yield database
    await database.close()


async def _created(server: PostgresServer, *, template: str) -> AsyncIterator[str]:
    name = f"test_{secrets.token_hex(6)}"
    await _administer(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url_of(name)
    await _administer(server, f"DROP DATABASE {name} WITH (FORCE)")


async def _administer(server: PostgresServer, statement: str) -> None:
    connection = await asyncpg.connect(server.url_of("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
