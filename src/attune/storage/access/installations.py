"""The one row of `installation`: what proves that database and key file belong together."""

from attune.storage.tx import Tx


async def insert(tx: Tx, key_check: bytes) -> bytes:
    """Write the row if there is none yet, and return the one that counts."""
    stored: bytes = await tx.fetch_value(
        """
        INSERT INTO installation AS i (key_check) VALUES ($1)
        ON CONFLICT (id) DO UPDATE SET key_check = i.key_check
        RETURNING key_check
        """,
        key_check,
    )
    return stored


async def find_key_check(tx: Tx) -> bytes | None:
    """The sealed proof, if the installation has one."""
    stored: bytes | None = await tx.fetch_value("SELECT key_check FROM installation WHERE id = 1")
    return stored
