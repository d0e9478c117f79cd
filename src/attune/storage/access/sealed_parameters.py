"""Rows of `sealed_parameters`: the secret values among an execution's parameters, readable only with the key."""

from collections.abc import Sequence

from attune.storage.tx import Tx


async def insert_many(tx: Tx, sealed: Sequence[tuple[int, bytes]]) -> None:
    """Keep what was sealed for each execution."""
    await tx.execute(
        "INSERT INTO sealed_parameters (execution_id, sealed) SELECT * FROM unnest($1::bigint[], $2::bytea[])",
        [execution_id for execution_id, _ in sealed],
        [content for _, content in sealed],
    )


async def delete_older_than(tx: Tx, *, days: int, limit: int) -> int:
    """Forget the secrets of executions that ended long ago."""
    deleted = await tx.fetch_column(
        """
        DELETE FROM sealed_parameters WHERE execution_id = ANY(ARRAY(
            SELECT s.execution_id FROM sealed_parameters s
             WHERE s.created < now() - make_interval(days => $1)
               AND NOT EXISTS (SELECT 1 FROM execution e
                                WHERE e.id = s.execution_id
                                  AND (e.ended_at IS NULL OR e.ended_at >= now() - make_interval(days => $1)))
             LIMIT $2))
        RETURNING execution_id
        """,
        days,
        limit,
    )
    return len(deleted)
