"""Artifacts as people and their programs read them."""

from dataclasses import dataclass
from datetime import datetime

from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactView:
    """Everything about an artifact but its content."""

    id: int
    execution_id: int
    attempt: int
    name: str
    media_type: str
    bytes: int
    sha256: str
    created: datetime


async def list_page(
    tx: Tx, *, execution_id: int | None, of_family: int | None, after: int, limit: int
) -> list[ArtifactView]:
    """In the order of their ids; of one execution, or of one and its children, if that is asked for."""
    rows = await tx.fetch(
        """
        SELECT id, execution_id, attempt, name, media_type, bytes, sha256, created FROM artifact a
         WHERE a.id > $3 AND ($1::bigint IS NULL OR a.execution_id = $1)
           AND ($2::bigint IS NULL OR a.execution_id = $2
                OR EXISTS (SELECT 1 FROM execution e WHERE e.id = a.execution_id AND e.parent = $2))
         ORDER BY a.id LIMIT $4
        """,
        execution_id,
        of_family,
        after,
        limit,
    )
    return [ArtifactView(**dict(row)) for row in rows]


async def find(tx: Tx, artifact_id: int) -> ArtifactView | None:
    """One artifact, if it exists."""
    row = await tx.fetch_row(
        """
        SELECT id, execution_id, attempt, name, media_type, bytes, sha256, created FROM artifact WHERE id = $1
        """,
        artifact_id,
    )
    return None if row is None else ArtifactView(**dict(row))


async def find_piece(tx: Tx, artifact_id: int, n: int) -> bytes | None:
    """One piece of its content; None if it was removed meanwhile."""
    content: bytes | None = await tx.fetch_value(
        "SELECT content FROM artifact_piece WHERE artifact_id = $1 AND n = $2", artifact_id, n
    )
    return content
