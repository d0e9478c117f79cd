"""Rows of `execution_log`: what attempts printed, in the order it was read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.storage.assignments import Held
from attune.storage.tx import Tx

# Where workers call out the ids of executions that wrote something.
CHANNEL = "attune_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of one attempt's output; `seq` counts over both streams, from 1."""

    held: Held
    stream: str
    seq: int
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """A stored piece of output."""

    attempt: int
    seq: int
    stream: str
    content: str
    at: datetime


async def insert_many(tx: Tx, chunks: Sequence[Chunk]) -> None:
    """Store those whose lease still holds; what a fenced attempt prints is nobody's."""
    await tx.execute(
        """
        INSERT INTO execution_log (execution_id, attempt, stream, seq, content)
        SELECT c.id, c.attempt, c.stream, c.seq, c.content
          FROM unnest($1::bigint[], $2::int[], $3::uuid[], $4::text[], $5::int[], $6::text[])
               AS c (id, attempt, lease, stream, seq, content)
          JOIN assignment a ON a.execution_id = c.id AND a.attempt = c.attempt AND a.lease = c.lease
         WHERE a.execution_id = ANY($1) AND a.started_at IS NOT NULL
         ORDER BY c.id, c.attempt, c.seq
        """,
        [chunk.held.execution_id for chunk in chunks],
        [chunk.held.attempt for chunk in chunks],
        [chunk.held.lease for chunk in chunks],
        [chunk.stream for chunk in chunks],
        [chunk.seq for chunk in chunks],
        [chunk.content for chunk in chunks],
    )


async def list_written(tx: Tx, chunks: Sequence[Chunk]) -> set[tuple[int, int, int]]:
    """Which of these are stored already: execution, attempt and seq. For chunks whose commit had no answer."""
    rows = await tx.fetch(
        """
        SELECT l.execution_id, l.attempt, l.seq
          FROM execution_log l
          JOIN unnest($1::bigint[], $2::int[], $3::int[]) AS c (id, attempt, seq)
            ON l.execution_id = c.id AND l.attempt = c.attempt AND l.seq = c.seq
         WHERE l.execution_id = ANY($1)
        """,
        [chunk.held.execution_id for chunk in chunks],
        [chunk.held.attempt for chunk in chunks],
        [chunk.seq for chunk in chunks],
    )
    return {(row["execution_id"], row["attempt"], row["seq"]) for row in rows}


async def list_after(
    tx: Tx, execution_id: int, *, stream: str | None, after: tuple[int, int], limit: int
) -> list[LogRow]:
    """What an execution printed after (attempt, seq), oldest first; of both streams if none is named."""
    rows = await tx.fetch(
        """
        SELECT attempt, seq, stream, content, at
          FROM execution_log
         WHERE execution_id = $1 AND ($2::text IS NULL OR stream = $2) AND (attempt, seq) > ($3, $4)
         ORDER BY attempt, seq LIMIT $5
        """,
        execution_id,
        stream,
        after[0],
        after[1],
        limit,
    )
    return [LogRow(**dict(row)) for row in rows]
