"""Which actions take their workers down with them, kept in the rows of `action`."""

from collections.abc import Sequence
from uuid import UUID

from attune.storage.tx import Tx


async def add_losses(tx: Tx, losses: Sequence[tuple[int, UUID]], *, losses_max: int) -> list[int]:
    """Note the workers that were lost while they ran an action; returns the actions that this quarantines.

    One worker counts once, however many executions of the action it took along.
    """
    return await tx.fetch_column(
        """
        WITH lost AS (
            SELECT l.action_id, array_agg(DISTINCT l.instance) AS instances
              FROM unnest($1::bigint[], $2::uuid[]) AS l (action_id, instance) GROUP BY l.action_id
        ), counted AS (
            SELECT a.id, a.quarantined_at,
                   ARRAY(SELECT unnest(a.lost_workers) UNION SELECT unnest(l.instances)) AS workers
              FROM action a JOIN lost l ON l.action_id = a.id
             ORDER BY a.id FOR NO KEY UPDATE OF a
        ), changed AS (
            UPDATE action a
               SET lost_workers = c.workers,
                   quarantined_at = COALESCE(c.quarantined_at, CASE WHEN cardinality(c.workers) >= $3 THEN now() END)
              FROM counted c WHERE a.id = c.id
            RETURNING a.id, c.quarantined_at IS NULL AND a.quarantined_at IS NOT NULL AS is_new
        )
        SELECT id FROM changed WHERE is_new
        """,
        [action_id for action_id, _ in losses],
        [instance for _, instance in losses],
        losses_max,
    )


async def forget_losses(tx: Tx, action_ids: Sequence[int]) -> None:
    """These succeeded; what is quarantined stays so until somebody releases it."""
    await tx.execute(
        """
        UPDATE action SET lost_workers = '{}' WHERE id = ANY(ARRAY(
            SELECT id FROM action WHERE id = ANY($1) AND lost_workers <> '{}' AND quarantined_at IS NULL
             ORDER BY id FOR NO KEY UPDATE))
        """,
        action_ids,
    )


async def release(tx: Tx, ref: str) -> bool | None:
    """Let an action be placed again; whether it was quarantined, None if there is none of this name."""
    held: bool | None = await tx.fetch_value(
        "SELECT quarantined_at IS NOT NULL FROM action WHERE ref = $1 FOR NO KEY UPDATE", ref
    )
    if held is not None:
        await tx.execute(
            """
            UPDATE action SET quarantined_at = NULL, lost_workers = '{}',
                   released_at = CASE WHEN quarantined_at IS NULL THEN released_at ELSE now() END
             WHERE ref = $1
            """,
            ref,
        )
    return held
