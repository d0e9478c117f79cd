"""Finds the installation's key for a service that starts."""

from pathlib import Path

import structlog

from attune.operations.access.verify_key import WrongKey, verify_key
from attune.runtime.keys import KeyFileUnusable, load_key
from attune.runtime.supervise import CannotStart
from attune.runtime.vault import Vault
from attune.storage.database import Database


async def open_vault(database: Database, file: Path) -> Vault:
    """The key in this file, or none if this machine does not have it; a wrong one keeps the service from starting."""
    try:
        key = load_key(file)
        async with database.transaction() as tx:
            await verify_key(tx, key)
    except FileNotFoundError:
        structlog.get_logger().warning(
            "key.missing",
            file=str(file),
            consequence="an API refuses secret parameters, and they fail on a worker",
            cure="copy the installation's key file here, or name it (security.key_file)",
        )
        return Vault()
    except (KeyFileUnusable, WrongKey) as error:
        raise CannotStart(str(error)) from error
    return Vault(key)
