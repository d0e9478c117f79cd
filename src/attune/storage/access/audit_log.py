"""Rows of `audit_log`: who changed what, written with the change."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.json_values import Json
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change somebody made."""

    identity: int | None
    actor: str
    operation: str
    resource: str
    detail: Json
    request_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A change as it is shown."""

    id: int
    at: datetime
    identity: int | None
    actor: str
    operation: str
    resource: str
    detail: Json
    request_id: str | None


async def insert_many(tx: Tx, entries: Sequence[AuditEntry]) -> None:
    """Write entries in the order given. Only `write_audit` calls this."""
    await tx.execute(
        """
        INSERT INTO audit_log (identity, actor, operation, resource, detail, request_id)
        SELECT identity, actor, operation, resource, detail, request_id
          FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::text[])
               WITH ORDINALITY AS n (identity, actor, operation, resource, detail, request_id, position)
         ORDER BY position
        """,
        [entry.identity for entry in entries],
        [entry.actor for entry in entries],
        [entry.operation for entry in entries],
        [entry.resource for entry in entries],
        [entry.detail for entry in entries],
        [entry.request_id for entry in entries],
    )


async def list_newest(tx: Tx, *, before: int, limit: int) -> list[AuditRow]:
    """Changes, the newest first."""
    rows = await tx.fetch(
        """
        SELECT id, at, identity, actor, operation, resource, detail, request_id FROM audit_log
         WHERE id < $1 ORDER BY id DESC LIMIT $2
        """,
        before,
        limit,
    )
    return [AuditRow(**dict(row)) for row in rows]


async def list_oldest(tx: Tx, *, after: int, limit: int) -> list[AuditRow]:
    """Changes, the oldest first."""
    rows = await tx.fetch(
        """
        SELECT id, at, identity, actor, operation, resource, detail, request_id FROM audit_log
         WHERE id > $1 ORDER BY id LIMIT $2
        """,
        after,
        limit,
    )
    return [AuditRow(**dict(row)) for row in rows]
