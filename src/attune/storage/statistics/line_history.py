"""Rows of `queue_stats_history`: what happened in the lines of each scope, minute by minute.

Rows are made from the lines' own counters, so that nothing is added where executions join and leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.storage.tx import Tx

# Waits are sampled from so many of each scope's lines, those that moved last, and from so much of the log of each.
LINES_MAX = 10
LOGGED_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStep:
    """What happened in some lines during one step of time."""

    at: datetime
    enqueued: int
    admitted: int
    completed: int
    removed: int
    # The most at any look, and the longest anybody then waiting had waited.
    waiting_max: int
    active_max: int
    oldest_seconds: float
    limit: int | None
    # Seconds waited by those admitted, from a sample; of several minutes the worst minute is told, except for the mean.
    wait_mean: float | None
    wait_max: float | None
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None


async def record(tx: Tx) -> None:
    """Write down this minute for every scope in which something moved or somebody stands.

    All of it is cumulative or a maximum: writing the same moment twice changes nothing.
    """
    await tx.execute(
        """
        INSERT INTO queue_stats_history AS h
               (scope, minute, total_enqueued, total_admitted, total_completed, total_removed, waiting, active,
                max_concurrent, waiting_max, active_max, oldest_seconds)
        SELECT s.scope, date_trunc('minute', now()), s.total_enqueued, s.total_completed + s.active, s.total_completed,
               s.total_removed, s.waiting, s.active, s.max_concurrent, s.waiting, s.active,
               COALESCE(GREATEST(0, extract(epoch FROM now() - s.oldest_enqueued_at)), 0)
          FROM line_scope s
          LEFT JOIN LATERAL (SELECT * FROM queue_stats_history p
                              WHERE p.scope = s.scope ORDER BY p.minute DESC LIMIT 1) last ON true
         WHERE s.waiting > 0 OR s.active > 0
            OR s.total_enqueued > COALESCE(last.total_enqueued, 0)
            OR s.total_completed > COALESCE(last.total_completed, 0)
            OR s.total_removed > COALESCE(last.total_removed, 0)
            OR last.waiting > 0 OR last.active > 0
         ORDER BY s.scope
        ON CONFLICT (scope, minute) DO UPDATE
           SET total_enqueued = GREATEST(h.total_enqueued, EXCLUDED.total_enqueued),
               total_admitted = GREATEST(h.total_admitted, EXCLUDED.total_admitted),
               total_completed = GREATEST(h.total_completed, EXCLUDED.total_completed),
               total_removed = GREATEST(h.total_removed, EXCLUDED.total_removed),
               waiting = EXCLUDED.waiting, active = EXCLUDED.active, max_concurrent = EXCLUDED.max_concurrent,
               waiting_max = GREATEST(h.waiting_max, EXCLUDED.waiting_max),
               active_max = GREATEST(h.active_max, EXCLUDED.active_max),
               oldest_seconds = GREATEST(h.oldest_seconds, EXCLUDED.oldest_seconds)
        """
    )


async def record_waits(tx: Tx) -> None:
    """Write down how long those waited who were admitted in this minute, as far as a bounded sample tells."""
    await tx.execute(
        """
        WITH moved AS (
            SELECT id, scope FROM (
                SELECT id, scope, row_number() OVER (PARTITION BY scope ORDER BY last_updated DESC) AS place
                  FROM line WHERE last_updated >= date_trunc('minute', now())) l
             WHERE place <= $1
        ), waits AS (
            SELECT m.scope, GREATEST(0, extract(epoch FROM g.at - COALESCE(x.queued_at, x.created)))::float8 AS seconds
              FROM moved m
             CROSS JOIN LATERAL (SELECT op, execution_id, at FROM admission_log
                                  WHERE line_id = m.id ORDER BY n DESC LIMIT $2) g
              JOIN execution x ON x.id = g.execution_id
             WHERE g.op = 'admit' AND g.at >= date_trunc('minute', now())
        ), told AS (
            SELECT scope, count(*) AS waits, avg(seconds) AS mean, max(seconds) AS most,
                   percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY seconds) AS share
              FROM waits GROUP BY scope ORDER BY scope
        )
        UPDATE queue_stats_history h
           SET waits = t.waits, wait_mean = t.mean, wait_max = t.most,
               wait_p50 = t.share[1], wait_p95 = t.share[2], wait_p99 = t.share[3]
          FROM told t WHERE h.scope = t.scope AND h.minute = date_trunc('minute', now())
        """,
        LINES_MAX,
        LOGGED_MAX,
    )


async def delete_older_than(tx: Tx, *, days: int, limit: int) -> int:
    """Forget old minutes, except the last of them for each scope: the next one is told by its difference to it."""
    deleted = await tx.fetch_column(
        """
        DELETE FROM queue_stats_history WHERE ctid = ANY(ARRAY(
            SELECT h.ctid FROM queue_stats_history h
             WHERE h.minute < now() - make_interval(days => $1)
               AND EXISTS (SELECT 1 FROM queue_stats_history n WHERE n.scope = h.scope AND n.minute > h.minute
                              AND n.minute < now() - make_interval(days => $1))
             ORDER BY h.minute LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING scope
        """,
        days,
        limit,
    )
    return len(deleted)


async def list_steps(tx: Tx, scopes: Sequence[str], *, since: datetime, step_seconds: int) -> list[LineStep]:
    """What happened in the lines of some scopes, the oldest step first; a step in which nothing was is left out."""
    rows = await tx.fetch(
        """
        WITH looked AS (
            SELECT h.*, h.total_enqueued - lag(h.total_enqueued, 1, 0::bigint) OVER w AS enqueued,
                   h.total_admitted - lag(h.total_admitted, 1, 0::bigint) OVER w AS admitted,
                   h.total_completed - lag(h.total_completed, 1, 0::bigint) OVER w AS completed,
                   h.total_removed - lag(h.total_removed, 1, 0::bigint) OVER w AS removed
              FROM unnest($1::text[]) AS s (scope)
             CROSS JOIN LATERAL (
                SELECT COALESCE(max(minute), $2) AS first FROM queue_stats_history
                 WHERE scope = s.scope AND minute < $2) before
              JOIN queue_stats_history h ON h.scope = s.scope AND h.minute >= before.first
            WINDOW w AS (PARTITION BY h.scope ORDER BY h.minute)
        ), stepped AS (
            SELECT scope, date_bin(make_interval(secs => $3), minute, 'epoch') AS at, sum(enqueued) AS enqueued,
                   sum(admitted) AS admitted, sum(completed) AS completed, sum(removed) AS removed,
                   max(waiting_max) AS waiting_max, max(active_max) AS active_max,
                   max(oldest_seconds) AS oldest_seconds,
                   (array_agg(max_concurrent ORDER BY minute DESC))[1] AS "limit", sum(waits) AS waits,
                   sum(wait_mean * waits) AS wait_sum, max(wait_max) AS wait_max, max(wait_p50) AS wait_p50,
                   max(wait_p95) AS wait_p95, max(wait_p99) AS wait_p99
              FROM looked WHERE minute >= $2 GROUP BY 1, 2
        )
        SELECT at, sum(enqueued)::bigint AS enqueued, sum(admitted)::bigint AS admitted,
               sum(completed)::bigint AS completed, sum(removed)::bigint AS removed,
               sum(waiting_max)::int AS waiting_max, sum(active_max)::int AS active_max,
               max(oldest_seconds) AS oldest_seconds, min("limit") AS "limit",
               sum(wait_sum) / NULLIF(sum(waits), 0)::float8 AS wait_mean, max(wait_max) AS wait_max,
               max(wait_p50) AS wait_p50, max(wait_p95) AS wait_p95, max(wait_p99) AS wait_p99
          FROM stepped GROUP BY at ORDER BY at
        """,
        scopes,
        since,
        float(step_seconds),
    )
    return [LineStep(**dict(row)) for row in rows]
