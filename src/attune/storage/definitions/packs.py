"""Rows of `pack`: what was installed, from where, with which content."""

from dataclasses import dataclass
from datetime import datetime

from attune.domain.definitions import PackDefinition
from attune.domain.json_values import Json
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class PackRow:
    """A pack as it is shown."""

    id: int
    ref: str
    label: str
    description: str
    version: str
    config_schema: Json
    source: str
    digest: str
    enabled: bool
    created: datetime
    updated: datetime


async def save(tx: Tx, pack: PackDefinition, *, digest: str, source: str) -> int:
    """Insert or replace by ref; the id and the configuration stay. Holds the row until the transaction ends."""
    pack_id: int = await tx.fetch_value(
        """
        INSERT INTO pack (ref, label, description, version, config_schema, digest, source)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (ref) DO UPDATE
           SET label = EXCLUDED.label, description = EXCLUDED.description, version = EXCLUDED.version,
               config_schema = EXCLUDED.config_schema, digest = EXCLUDED.digest, source = EXCLUDED.source,
               updated = now()
        RETURNING id
        """,
        pack.ref,
        pack.label,
        pack.description,
        pack.version,
        pack.config_schema or {},
        digest,
        source,
    )
    return pack_id


async def lock_ref(tx: Tx, ref: str) -> None:
    """Let one transaction at a time work on a pack of this name, whether or not it exists."""
    await tx.execute("SELECT pg_advisory_xact_lock(hashtextextended('attune pack ' || $1, 0))", ref)


async def find(tx: Tx, ref: str) -> PackRow | None:
    """The pack of this name."""
    row = await tx.fetch_row(
        """
        SELECT id, ref, label, description, version, config_schema, source, digest, enabled, created, updated
          FROM pack WHERE ref = $1
        """,
        ref,
    )
    return PackRow(**dict(row)) if row else None


async def list_page(tx: Tx, *, after: int, limit: int) -> list[PackRow]:
    """Packs in the order of their ids."""
    rows = await tx.fetch(
        """
        SELECT id, ref, label, description, version, config_schema, source, digest, enabled, created, updated
          FROM pack WHERE id > $1 ORDER BY id LIMIT $2
        """,
        after,
        limit,
    )
    return [PackRow(**dict(row)) for row in rows]


async def list_refs(tx: Tx) -> list[str]:
    """Every name, to suggest the nearest."""
    return await tx.fetch_column("SELECT ref FROM pack ORDER BY ref LIMIT 10000")
