"""What tests of the API can ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attune.storage.database import Database
from tests.api.running import Api, install_demo, serving


@pytest.fixture
async def api(database: Database, tmp_path: Path) -> AsyncIterator[Api]:
    """A served API with a small pack installed."""
    await install_demo(database)
    async with serving(database, tmp_path / "packs") as served:
        yield served
