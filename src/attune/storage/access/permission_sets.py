"""Rows of `permission_set`: named bundles of grants."""

from attune.storage.tx import Tx


async def find_id(tx: Tx, ref: str) -> int | None:
    """The id of the set of this name."""
    found: int | None = await tx.fetch_value("SELECT id FROM permission_set WHERE ref = $1", ref)
    return found


async def list_refs(tx: Tx) -> list[str]:
    """Every name, to suggest the nearest."""
    return await tx.fetch_column("SELECT ref FROM permission_set ORDER BY ref LIMIT 1000")
