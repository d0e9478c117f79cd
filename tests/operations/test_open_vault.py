"""A service finds the installation's key, does without, or does not start; it never goes on with a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from attune.operations.access.open_vault import open_vault
from attune.runtime.keys import load_or_create_key
from attune.runtime.supervise import CannotStart
from attune.runtime.vault import NoKey
from attune.storage.database import Database


async def test_the_key_of_the_installation_opens_what_it_sealed(database: Database, tmp_path: Path) -> None:
    load_or_create_key(tmp_path / "master.key")
    sealed = (await open_vault(database, tmp_path / "master.key")).seal(b"x", context="here")

    again = await open_vault(database, tmp_path / "master.key")

    assert again.open(sealed, context="here") == b"x"


async def test_a_service_without_the_key_starts_and_can_open_nothing(database: Database, tmp_path: Path) -> None:
    vault = await open_vault(database, tmp_path / "missing.key")

    with pytest.raises(NoKey, match=r"security\.key_file"):
        vault.seal(b"x", context="here")


async def test_the_key_of_another_installation_keeps_a_service_from_starting(
    database: Database, tmp_path: Path
) -> None:
    load_or_create_key(tmp_path / "mine.key")
    load_or_create_key(tmp_path / "another.key")
    await open_vault(database, tmp_path / "mine.key")

    with pytest.raises(CannotStart, match="does not belong to this database"):
        await open_vault(database, tmp_path / "another.key")


async def test_a_key_that_others_may_read_keeps_a_service_from_starting(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "master.key"
    load_or_create_key(file)
    file.chmod(0o644)

    with pytest.raises(CannotStart, match="chmod 600"):
        await open_vault(database, file)
