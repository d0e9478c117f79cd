"""Homes and a stand-in for the API."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.stand_in_api import StandInApi


@pytest.fixture
def home() -> Iterator[Path]:
    """A home in the temp dir, not in pytest's private one, which the database's account could not enter."""
    directory = Path(tempfile.mkdtemp(prefix="attune-cli-"))
    directory.chmod(0o755)
    yield directory / "home"
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def api() -> Iterator[StandInApi]:
    with StandInApi() as api:
        yield api
