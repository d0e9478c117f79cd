"""Where a runner of one test finds packs, and how it marks what it starts."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from attune.worker.processes import Marking


@pytest.fixture
def marking(tmp_path: Path) -> Marking:
    return Marking(home=tmp_path, worker="worker-1", instance=uuid4())


@pytest.fixture
def packs(tmp_path: Path) -> Path:
    """Where installed packs lie."""
    folder = tmp_path / "packs"
    folder.mkdir()
    return folder
