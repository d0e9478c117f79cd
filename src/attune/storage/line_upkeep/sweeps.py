"""What sweeps look for in lines: who waited too long, and whose limit has to move."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from attune.domain.adaptive import ENDED_MAX, ENDED_MIN, Decision, Window
from attune.domain.definitions import Adaptive
from attune.storage.tx import Tx

# What a decision rests on at most, from the end of the line's log.
LOGGED_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """Somebody who has waited longer than the line's policy, or the setting, allows."""

    execution_id: int
    line_id: int
    timeout_seconds: float


async def list_overdue(tx: Tx, *, default_seconds: float, held: bool, limit: int) -> list[Overdue]:
    """Who waited too long, the longest first; reads no entry younger than the shortest timeout there is.

    Of those whom people hold or held until lately (`held`), by pausing the line or by a quarantine that waits for them;
    or else of the others.
    """
    rows = await tx.fetch(
        """
        SELECT e.execution_id, e.line_id, COALESCE(p.queue_timeout_seconds, $1)::float8 AS timeout_seconds
          FROM line_entry e
          JOIN line l ON l.id = e.line_id
          LEFT JOIN policy p ON p.id = l.policy_id AND p.enabled
          LEFT JOIN action a ON a.id = e.action_id
          JOIN execution x ON x.id = e.execution_id AND x.status = 'queued'
         WHERE e.state = 'waiting' AND e.timeout_from > '-infinity'
           AND (l.paused OR a.quarantined_at IS NOT NULL OR COALESCE(
                   GREATEST(l.resumed_at, a.released_at) > e.timeout_from, false)) = $3
           AND e.timeout_from < now() - make_interval(secs => LEAST($1, (
                   SELECT min(queue_timeout_seconds) FROM policy WHERE enabled)))
           AND e.timeout_from < now() - make_interval(secs => COALESCE(p.queue_timeout_seconds, $1))
         ORDER BY e.timeout_from LIMIT $2
        """,
        default_seconds,
        limit,
        held,
    )
    return [Overdue(**dict(row)) for row in rows]


async def put_off_timeouts(tx: Tx, execution_ids: Sequence[int]) -> None:
    """Let the timeout of those who wait count from now, or from when they were let go; the lines are locked."""
    await tx.execute(
        """
        UPDATE line_entry e
           SET timeout_from = CASE WHEN l.paused OR a.quarantined_at IS NOT NULL THEN now()
                                   ELSE GREATEST(e.timeout_from, l.resumed_at, a.released_at) END
          FROM line l, line_entry o LEFT JOIN action a ON a.id = o.action_id
         WHERE l.id = e.line_id AND o.execution_id = e.execution_id
           AND e.execution_id = ANY($1) AND e.state = 'waiting'
        """,
        execution_ids,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapting:
    """A line whose limit moves by itself, and what happened since its last decision."""

    line_id: int
    adaptive: Adaptive
    limit: int
    best_seconds: float | None
    window: Window


async def list_adaptive(tx: Tx, *, limit: int) -> list[int]:
    """Lines with an adaptive limit in which enough have ended that a look is worth its while."""
    return await tx.fetch_column(
        """
        SELECT l.id FROM policy p JOIN line l ON l.scope = p.scope AND l.policy_id = p.id
         WHERE p.enabled AND p.adaptive IS NOT NULL AND l.adapted_n IS NOT NULL
           AND l.total_completed >= l.adapted_total + LEAST($1, GREATEST($2, l.max_concurrent))
         ORDER BY l.id LIMIT $3
        """,
        ENDED_MAX,
        ENDED_MIN,
        limit,
    )


async def read_windows(tx: Tx, line_ids: Sequence[int]) -> list[Adapting]:
    """What happened in these lines under the limit they have, from the ends of their logs; the lines are locked.

    A slot given back by an execution that ended later, or not at all, was left for a delayed retry: that try failed.
    """
    rows = await tx.fetch(
        """
        SELECT l.id, p.adaptive, l.max_concurrent, l.best_seconds, w.ended, w.failed, w.seconds,
               l.waiting > 0 OR COALESCE(w.was_full, false) AS was_full
          FROM line l JOIN policy p ON p.id = l.policy_id AND p.enabled AND p.adaptive IS NOT NULL
         CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE o.outcome <> 'cancelled') AS ended,
                   count(*) FILTER (WHERE o.outcome IN ('failed', 'timeout')) AS failed,
                   avg(o.seconds) FILTER (WHERE o.outcome = 'succeeded') AS seconds,
                   bool_or(o.op = 'admit' AND o.active >= o.limit_in_force) AS was_full
              FROM (
                SELECT g.op, g.active, g.limit_in_force,
                       CASE WHEN x.ended_at <= g.at THEN x.status WHEN x.id IS NOT NULL THEN 'failed' END AS outcome,
                       extract(epoch FROM x.ended_at - x.started_at)::float8 AS seconds
                  FROM (SELECT * FROM admission_log
                         WHERE line_id = l.id AND n >= l.adapted_n AND at >= l.adapted_at
                           AND op IN ('admit', 'release')
                         ORDER BY n DESC LIMIT $2) g
                  LEFT JOIN execution x ON g.op = 'release' AND x.id = g.execution_id
                                       AND x.started_at >= l.adapted_at) o) w
         WHERE l.id = ANY($1) AND l.adapted_n IS NOT NULL
        """,
        line_ids,
        LOGGED_MAX,
    )
    return [
        Adapting(
            line_id=row["id"],
            adaptive=msgspec.convert(row["adaptive"], Adaptive),
            limit=row["max_concurrent"],
            best_seconds=row["best_seconds"],
            window=Window(ended=row["ended"], failed=row["failed"], seconds=row["seconds"], full=row["was_full"]),
        )
        for row in rows
    ]


async def save_looks(tx: Tx, looks: Sequence[tuple[Adapting, Decision | None]]) -> list[int]:
    """Begin the next windows where something was decided, move limits and log it; the lines are locked.

    Returns the lines whose limit changed.
    """
    return await tx.fetch_column(
        """
        WITH changed AS (
            UPDATE line l
               SET max_concurrent = c."limit", best_seconds = c.best_seconds,
                   limit_reason = COALESCE(c.reason, l.limit_reason),
                   next_n = l.next_n + c.moved,
                   adapted_n = CASE WHEN c.decided THEN l.next_n + c.moved ELSE l.adapted_n END,
                   adapted_at = CASE WHEN c.moved = 1 THEN clock_timestamp() ELSE l.adapted_at END,
                   adapted_total = l.total_completed - c.counted,
                   last_updated = CASE WHEN c.moved = 1 THEN now() ELSE l.last_updated END
              FROM jsonb_to_recordset($1) AS c (line_id bigint, "limit" int, best_seconds float8, reason text,
                                                moved int, decided boolean, counted int)
             WHERE l.id = c.line_id
            RETURNING l.id, l.next_n - 1 AS n, l.max_concurrent, l.active, c.reason
        )
        INSERT INTO admission_log (line_id, n, op, limit_in_force, active, reason)
        SELECT id, n, 'limit', max_concurrent, active, reason FROM changed WHERE reason IS NOT NULL
        RETURNING line_id
        """,
        [
            {
                "line_id": line.line_id,
                "limit": decision.limit if decision else line.limit,
                "best_seconds": decision.best_seconds if decision else line.best_seconds,
                "reason": decision.reason or None if decision else None,
                "moved": int(decision is not None and bool(decision.reason)),
                "decided": decision is not None,
                # What counted towards a window that goes on need not happen again before the next look.
                "counted": 0 if decision else line.window.ended,
            }
            for line, decision in looks
        ],
    )
