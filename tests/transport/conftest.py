"""The same tests on both transports."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from attune.storage.database import Database
from tests.transport.station import Station, station


@pytest.fixture(params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def transport(request: pytest.FixtureRequest) -> str:
    """Which transport this test runs on."""
    return str(request.param)


@pytest.fixture
def broker_url(request: pytest.FixtureRequest, transport: str) -> str:
    """The broker's address; empty where the database is the broker."""
    return str(request.getfixturevalue("rabbitmq_url")) if transport == "rabbitmq" else ""


@pytest.fixture
async def effect_table(database: Database) -> None:
    """Where handlers of these tests leave what they did."""
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE effect (item bigint PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")


@pytest.fixture
async def here(database_url: str, broker_url: str, effect_table: None) -> AsyncIterator[Station]:
    """A process with its transport running."""
    async with station(database_url, broker_url) as running:
        yield running
