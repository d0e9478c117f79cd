"""Pings and pongs of workers, kept in their rows."""

from uuid import UUID

from attune.domain.placement import STALE_INTERVALS
from attune.storage import workers
from attune.storage.tx import Tx

# A ping that nobody answers stays in its queue; only after this many periods another one is put beside it.
REPEAT_PERIODS = 10


async def mark_unresponsive(tx: Tx, *, patience_seconds: float) -> list[int]:
    """Keep placement away from active workers that did not answer in time; while the database was away nobody could."""
    return await tx.fetch_column(
        """
        WITH silent AS (
            SELECT id FROM worker
             WHERE status = 'active' AND awaited_since < now() - make_interval(secs => $1)
               AND pg_postmaster_start_time() < now() - make_interval(secs => $1)
             ORDER BY id FOR NO KEY UPDATE
        )
        UPDATE worker w SET status = 'unresponsive', updated = now() FROM silent
         WHERE w.id = silent.id AND w.status = 'active'
        RETURNING w.id
        """,
        patience_seconds,
    )


async def take_due(tx: Tx, *, period_seconds: float) -> list[int]:
    """Note a ping for each worker that is heard of and was not pinged lately; another replica's are passed over."""
    return await tx.fetch_column(
        """
        WITH due AS (
            SELECT id FROM worker
             WHERE status IN ('active', 'unresponsive', 'draining')
               AND last_heartbeat + make_interval(secs => $2 * heartbeat_interval) >= now()
               AND (pinged_at IS NULL OR pinged_at < now() - make_interval(
                        secs => $1::float8 * CASE WHEN awaited_since IS NULL THEN 1 ELSE $3::float8 END))
             ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE worker w SET pinged_at = now(), awaited_since = COALESCE(w.awaited_since, now()) FROM due
         WHERE w.id = due.id
        RETURNING w.id
        """,
        period_seconds,
        float(STALE_INTERVALS),
        float(REPEAT_PERIODS),
    )


async def save_pong(tx: Tx, instance: UUID) -> bool:
    """Note an answer; returns whether the worker had been silent and may be given work again."""
    before = await workers.lock_status(tx, instance)
    await tx.execute(
        """
        UPDATE worker
           SET ponged_at = now(), awaited_since = NULL,
               status = CASE WHEN status = 'unresponsive' THEN 'active' ELSE status END
         WHERE instance = $1
        """,
        instance,
    )
    return before == "unresponsive"
