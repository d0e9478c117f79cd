"""Services on both transports."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attune.storage.database import Database
from tests.transport.conftest import broker_url, transport
from tests.witness.fleet import Fleet, running_fleet

__all__ = ["broker_url", "transport"]


@pytest.fixture
async def fleet(database: Database, database_url: str, broker_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    """An executor with short settings, and worker processes as the test starts them."""
    async with running_fleet(database, database_url, broker_url, tmp_path) as running:
        yield running
