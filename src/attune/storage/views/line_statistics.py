"""How the lines of an action are doing: totals, waits, rates and ages.

Totals come from the lines' own counters. Everything else is read from a bounded sample, so that asking costs the same
whether ten wait or a million.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.storage.tx import Tx

# A head that has waited this long beside a free slot was not just overlooked by the moment of reading.
STUCK_SECONDS = 5.0
# Waits and rates rest on what happened within this time, in at most so many lines, at most so much in each.
RECENT_SECONDS = 300.0
LINES_MAX = 50
LOGGED_MAX = 400
# Ages rest on at most so many who wait, from the front of each line.
WAITING_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The lines of an action, taken together."""

    lines: int
    queue_length: int
    active_count: int
    max_concurrent: int | None
    oldest_enqueued_at: datetime | None
    oldest_seconds: float
    total_enqueued: int
    total_completed: int
    last_updated: datetime | None
    paused: bool
    fullness: float
    stuck_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What happened lately."""

    arrivals_per_second: float
    completions_per_second: float
    # Seconds waited by those admitted lately: half, 95 and 99 of a hundred waited no longer. None: nobody was.
    waits: Sequence[float] | None


async def read_totals(tx: Tx, scopes: Sequence[str], *, default_length_max: int) -> Totals:
    """The counters of some scopes, over the lines they have and had, and how the lines they have are doing."""
    row = await tx.fetch_row(
        """
        WITH judged AS (
            SELECT COALESCE(bool_or(l.paused), false) AS paused,
                   COALESCE(max(l.waiting::float8 / GREATEST(1, COALESCE(p.max_queue_length, $2))), 0) AS fullness,
                   count(*) FILTER (WHERE NOT l.paused AND (l.wake_at IS NULL OR l.wake_at <= now())
                       AND l.active < COALESCE(l.max_concurrent, l.active + 1)
                       AND l.waiting > 0 AND oldest_waiting(l.id) < now() - make_interval(secs => $3)) AS stuck_lines
              FROM line l LEFT JOIN policy p ON p.id = l.policy_id
             WHERE l.scope = ANY($1)
        ), counted AS (
            SELECT COALESCE(sum(lines), 0)::int AS lines, COALESCE(sum(waiting), 0)::int AS queue_length,
                   COALESCE(sum(active), 0)::int AS active_count, min(max_concurrent) AS max_concurrent,
                   min(oldest_enqueued_at) AS oldest_enqueued_at,
                   COALESCE(extract(epoch FROM now() - min(oldest_enqueued_at)), 0)::float8 AS oldest_seconds,
                   COALESCE(sum(total_enqueued), 0)::bigint AS total_enqueued,
                   COALESCE(sum(total_completed), 0)::bigint AS total_completed, max(last_updated) AS last_updated
              FROM line_scope WHERE scope = ANY($1)
        )
        SELECT counted.*, judged.* FROM counted, judged
        """,
        scopes,
        default_length_max,
        STUCK_SECONDS,
    )
    if row is None:
        raise RuntimeError("an aggregate without groups always has a row")
    return Totals(**dict(row))


async def read_flow(tx: Tx, scopes: Sequence[str]) -> Flow:
    """Rates and waits of the last minutes, from the ends of the logs of the lines that moved last."""
    row = await tx.fetch_row(
        """
        WITH logged AS (
            SELECT l.id, g.op, g.execution_id, g.at
              FROM (SELECT id FROM line WHERE scope = ANY($1) ORDER BY last_updated DESC LIMIT $2) l
             CROSS JOIN LATERAL (
                SELECT op, execution_id, at FROM admission_log
                 WHERE line_id = l.id ORDER BY n DESC LIMIT $4) g
             WHERE g.at > now() - make_interval(secs => $3)
        ), rates AS (
            SELECT count(*) FILTER (WHERE op = 'enq') / span AS arrivals,
                   count(*) FILTER (WHERE op = 'release') / span AS completions
              FROM (SELECT op, GREATEST(1, extract(epoch FROM now() - min(at) OVER (PARTITION BY id)))::float8 AS span,
                           id FROM logged) spans
             GROUP BY id, span
        ), waits AS (
            SELECT GREATEST(0, extract(epoch FROM g.at - COALESCE(x.queued_at, x.created)))::float8 AS seconds
              FROM logged g JOIN execution x ON x.id = g.execution_id WHERE g.op = 'admit'
        )
        SELECT COALESCE((SELECT sum(arrivals) FROM rates), 0)::float8 AS arrivals_per_second,
               COALESCE((SELECT sum(completions) FROM rates), 0)::float8 AS completions_per_second,
               (SELECT percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY seconds) FROM waits) AS waits
        """,
        scopes,
        LINES_MAX,
        RECENT_SECONDS,
        LOGGED_MAX,
    )
    if row is None:
        raise RuntimeError("a list of scalars always has a row")
    return Flow(**dict(row))


async def count_ages(tx: Tx, scopes: Sequence[str], bounds: Sequence[float]) -> list[int]:
    """How many of those in front have waited less than each bound, and in the end how many longer than all."""
    rows = await tx.fetch(
        """
        SELECT width_bucket(extract(epoch FROM now() - w.enqueued_at)::float8, $2::float8[]) AS bucket,
               count(*) AS waiting
          FROM (SELECT id FROM line WHERE scope = ANY($1) AND waiting > 0 ORDER BY waiting DESC LIMIT $3) l
         CROSS JOIN LATERAL (SELECT e.enqueued_at FROM line_entry e WHERE e.line_id = l.id AND e.state = 'waiting'
                              ORDER BY e.priority DESC, e.seq LIMIT $4) w
         GROUP BY 1
        """,
        scopes,
        list(bounds),
        LINES_MAX,
        WAITING_MAX,
    )
    counted = {row["bucket"]: row["waiting"] for row in rows}
    return [counted.get(bucket, 0) for bucket in range(len(bounds) + 1)]


async def list_longest_ids(tx: Tx, scopes: Sequence[str], *, limit: int) -> list[int]:
    """The lines in which most wait, then those with most at work."""
    return await tx.fetch_column(
        "SELECT id FROM line WHERE scope = ANY($1) ORDER BY waiting DESC, active DESC, id LIMIT $2", scopes, limit
    )
