"""What attempts printed, as people read it."""

from dataclasses import dataclass
from datetime import datetime

from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of output, in the order it was read."""

    attempt: int
    stream: str
    seq: int
    content: str
    at: datetime


async def list_chunks(
    tx: Tx, execution_id: int, *, attempt: int | None, stream: str | None, after: tuple[int, int], limit: int
) -> list[LogChunk]:
    """Output after the given (attempt, seq), of one attempt or stream if they are named."""
    rows = await tx.fetch(
        """
        SELECT attempt, stream, seq, content, at FROM execution_log
         WHERE execution_id = $1 AND (attempt, seq) > ($2, $3)
           AND ($4::int IS NULL OR attempt = $4) AND ($5::text IS NULL OR stream = $5)
         ORDER BY attempt, seq LIMIT $6
        """,
        execution_id,
        *after,
        attempt,
        stream,
        limit,
    )
    return [LogChunk(**dict(row)) for row in rows]
