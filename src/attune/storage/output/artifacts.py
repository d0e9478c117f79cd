"""Rows of `artifact` and `artifact_piece`: results that are too large for the row of their execution."""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.storage.assignments import Held
from attune.storage.tx import Tx

# Every piece but the last has this size, so that a part of the content is found without reading what is before it.
PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NewArtifact:
    """What an attempt leaves behind."""

    held: Held
    name: str
    media_type: str
    bytes: int
    sha256: str


async def insert(tx: Tx, new: NewArtifact) -> int | None:
    """Its id, if the attempt still holds its lease and has stored nothing of this name before."""
    artifact_id: int | None = await tx.fetch_value(
        """
        INSERT INTO artifact (execution_id, attempt, name, media_type, bytes, sha256)
        SELECT a.execution_id, a.attempt, $4, $5, $6, $7
          FROM assignment a
         WHERE a.execution_id = $1 AND a.attempt = $2 AND a.lease = $3 AND a.started_at IS NOT NULL
        ON CONFLICT ON CONSTRAINT uq_artifact_of_attempt DO NOTHING
        RETURNING id
        """,
        new.held.execution_id,
        new.held.attempt,
        new.held.lease,
        new.name,
        new.media_type,
        new.bytes,
        new.sha256,
    )
    return artifact_id


async def insert_pieces(tx: Tx, artifact_id: int, pieces: Sequence[tuple[int, bytes]]) -> None:
    """Some of its content, each piece with its number."""
    await tx.execute(
        """
        INSERT INTO artifact_piece (artifact_id, n, content)
        SELECT $1, n, content FROM unnest($2::int[], $3::bytea[]) AS p (n, content)
        """,
        artifact_id,
        [n for n, _ in pieces],
        [content for _, content in pieces],
    )


async def find_id(tx: Tx, held: Held, name: str) -> int | None:
    """What an attempt stored under a name before."""
    artifact_id: int | None = await tx.fetch_value(
        "SELECT id FROM artifact WHERE execution_id = $1 AND attempt = $2 AND name = $3",
        held.execution_id,
        held.attempt,
        name,
    )
    return artifact_id


async def delete_older_than(tx: Tx, *, days: int, limit: int) -> int:
    """Remove old ones with their content, the oldest first."""
    deleted = await tx.fetch_column(
        """
        DELETE FROM artifact WHERE id = ANY(ARRAY(
            SELECT id FROM artifact WHERE created < now() - make_interval(days => $1) ORDER BY created LIMIT $2))
        RETURNING id
        """,
        days,
        limit,
    )
    return len(deleted)
