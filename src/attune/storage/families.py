"""Rows of `execution` as families: who is below whom, and who only waits for the end of those below."""

from collections.abc import Sequence

from attune.domain.endings.cancelling import Stopping
from attune.storage.tx import Tx


async def list_live(tx: Tx, execution_id: int, *, depth_max: int, limit: int) -> dict[int, int]:
    """Everybody alive below an execution with their parents, each parent before its children; not locked."""
    rows = await tx.fetch(
        """
        WITH RECURSIVE family AS (
            SELECT e.id, e.parent, 0 AS depth FROM execution e WHERE e.id = $1
            UNION ALL
            SELECT c.id, c.parent, f.depth + 1 FROM family f JOIN execution c ON c.parent = f.id
             WHERE f.depth < $2 AND c.ended_at IS NULL
        )
        SELECT id, parent FROM family WHERE depth > 0 ORDER BY depth, id LIMIT $3
        """,
        execution_id,
        depth_max,
        limit,
    )
    return {row["id"]: row["parent"] for row in rows}


async def lock_stopping(tx: Tx, ids: Sequence[int]) -> dict[int, Stopping]:
    """Those of these who were asked to stop and have no worker, locked.

    Whoever was asked before its child was locked is locked already. Who was asked since is an earlier lock after a
    later one, so nobody waits for it: where it is taken, the transaction is tried again.
    """
    rows = await tx.fetch(
        """
        SELECT id AS execution_id, attempt, changed_by AS asked_by FROM execution
         WHERE id = ANY($1) AND status = 'canceling' AND worker IS NULL ORDER BY id FOR NO KEY UPDATE NOWAIT
        """,
        ids,
    )
    return {row["execution_id"]: Stopping(**dict(row)) for row in rows}


async def list_childless(tx: Tx, ids: Sequence[int]) -> list[int]:
    """Those of these who have nobody alive below them; asked after they were locked, by whoever ends a child."""
    return await tx.fetch_column(
        """
        SELECT p.id FROM unnest($1::bigint[]) AS p (id)
         WHERE NOT EXISTS (SELECT 1 FROM execution c WHERE c.parent = p.id AND c.ended_at IS NULL)
        """,
        ids,
    )
