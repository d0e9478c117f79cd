"""What pools of executions have to do and who could do it; each part reads a bounded number of rows."""

from attune.domain.availability.scaling import Fleet, PoolDemand
from attune.domain.placement import STALE_INTERVALS
from attune.storage.tx import Tx

# Counting those who wait in a pool, and dead letters of the last minute, ends here.
BACKLOG_MAX = 10_000
# What the speed is taken from: the newest executions, as far as they ended within these seconds.
NEWEST_MAX = 2000
RECENT_SECONDS = 60.0


async def list_demand(tx: Tx) -> list[PoolDemand]:
    """Every pool in which something runs, waits, or ended lately."""
    rows = await tx.fetch(
        """
        WITH ended AS (
            SELECT action, ended_at FROM (SELECT * FROM execution ORDER BY id DESC LIMIT $1) n
             WHERE started_at IS NOT NULL AND ended_at > now() - make_interval(secs => $2)
        ), quarantined AS (SELECT id FROM action WHERE quarantined_at IS NOT NULL
        ), counted (action, running, held, ended, dead) AS (
            SELECT e.action, count(*), 0, 0, 0 FROM assignment s JOIN execution e ON e.id = s.execution_id GROUP BY 1
            UNION ALL
            SELECT h.action_id, 0, sum(LEAST(l.waiting, COALESCE(l.max_concurrent - l.active, l.waiting))), 0, 0
              FROM line l
             CROSS JOIN LATERAL (SELECT n.action_id FROM line_entry n WHERE n.line_id = l.id AND n.state = 'waiting'
                                  ORDER BY n.priority DESC, n.seq LIMIT 1) h
             WHERE l.held AND h.action_id NOT IN (SELECT id FROM quarantined) GROUP BY h.action_id
            UNION ALL
            SELECT action, 0, 0, count(*), 0 FROM ended GROUP BY action
            UNION ALL
            SELECT a.id, 0, 0, 0, count(*)
              FROM (SELECT action_ref FROM dead_letter WHERE parked_at > now() - interval '1 minute' LIMIT $3) d
              JOIN action a ON a.ref = d.action_ref GROUP BY a.id
        ), pools AS (
            SELECT a.pool, a.runner, a.labels, a.isolation, COALESCE(sum(c.running), 0)::int AS running,
                   COALESCE(sum(c.held), 0)::int AS held, COALESCE(sum(c.ended), 0)::float8 AS ended,
                   COALESCE(sum(c.dead), 0)::int AS dead,
                   (SELECT count(*) FROM (SELECT 1 FROM unplaced u WHERE u.pool = a.pool AND u.action_id NOT IN (
                        SELECT id FROM quarantined) LIMIT $3) first)::int AS unplaced
              FROM action a LEFT JOIN counted c ON c.action = a.id
             GROUP BY a.pool, a.runner, a.labels, a.isolation
        )
        SELECT p.pool::text, p.runner, p.labels, p.isolation, p.running, p.unplaced + p.held AS backlog,
               p.ended / GREATEST(1, (SELECT extract(epoch FROM now() - min(ended_at)) FROM ended))::float8
                   AS completions_per_second, p.dead AS dead_letters_per_minute,
               count(w.id)::int AS workers, COALESCE(sum(w.capacity), 0)::int AS capacity
          FROM pools p
          LEFT JOIN worker w ON w.status = 'active' AND NOT w.cordoned AND p.runner = ANY (w.runtimes)
               AND p.labels <@ w.labels
               AND (p.runner = 'container' OR isolation_level(p.isolation) <= isolation_level(w.isolation))
               AND w.last_heartbeat >= now() - make_interval(secs => $4 * w.heartbeat_interval)
         WHERE p.running + p.unplaced + p.held > 0 OR p.ended > 0 OR p.dead > 0
         GROUP BY p.pool, p.runner, p.labels, p.isolation, p.running, p.unplaced, p.held, p.ended, p.dead
         ORDER BY p.pool
        """,
        NEWEST_MAX,
        RECENT_SECONDS,
        BACKLOG_MAX,
        float(STALE_INTERVALS),
    )
    return [PoolDemand(**dict(row)) for row in rows]


async def read_fleet(tx: Tx) -> Fleet:
    """How many workers may be given work, and how much they hold together."""
    row = await tx.fetch_row(
        """
        SELECT count(*)::int AS workers, COALESCE(sum(capacity), 0)::int AS capacity FROM worker
         WHERE status = 'active' AND NOT cordoned
           AND last_heartbeat >= now() - make_interval(secs => $1 * heartbeat_interval)
        """,
        float(STALE_INTERVALS),
    )
    if row is None:
        raise RuntimeError("an aggregate without groups always has a row")
    return Fleet(**dict(row))
