"""What must be true of the logs of lines: everything that happened in them, in order.

Numbers of a line's log are given under the line's lock, so they are in the order of commits and none is missing.
"""

from collections.abc import Sequence

from attune.storage.upkeep.claims.invariant import Invariant, Reads

ADMISSIONS: Sequence[Invariant] = (
    Invariant(
        name="line_log_numbers",
        claim="The log of a line has every number exactly once.",
        reads=Reads.ADMISSIONS,
        statement="""
            SELECT line_id, n, n_before FROM (
                SELECT a.line_id, a.n, COALESCE(lag(a.n) OVER (PARTITION BY a.line_id ORDER BY a.n), w.n) AS n_before
                  FROM line_windows($1) w JOIN admission_log a ON a.line_id = w.line_id AND a.n > w.n) numbered
             WHERE n <> n_before + 1
            UNION ALL
            SELECT w.line_id, w.last_n, l.n
              FROM line_windows($1) w
              LEFT JOIN LATERAL (SELECT a.n FROM admission_log a WHERE a.line_id = w.line_id
                                  ORDER BY a.n DESC LIMIT 1) l ON true
             WHERE w.last_n IS DISTINCT FROM l.n AND w.last_n IS NOT NULL
        """,
    ),
    Invariant(
        name="line_log_balances",
        claim="What the log of a line says adds up to the line's counters; nobody is left in a removed line.",
        reads=Reads.ADMISSIONS,
        statement="""
            SELECT * FROM (
                SELECT w.line_id, w.enqueued + COALESCE(s.joined, 0) AS enqueued, w.enqueued_now,
                       w.completed + COALESCE(s.released, 0) AS completed, w.completed_now,
                       w.removed + COALESCE(s.removed, 0) AS removed, w.removed_now,
                       w.active + COALESCE(s.admitted - s.released, 0) AS active, w.active_now,
                       w.waiting + COALESCE(s.joined - s.admitted - s.removed, 0) AS waiting, w.waiting_now
                  FROM line_windows($1) w
                  LEFT JOIN (SELECT line_id, count(*) FILTER (WHERE op IN ('enq', 'rejoin')) AS joined,
                                    count(*) FILTER (WHERE op = 'admit') AS admitted,
                                    count(*) FILTER (WHERE op = 'release') AS released,
                                    count(*) FILTER (WHERE op = 'remove') AS removed
                               FROM admissions_since($1) GROUP BY line_id) s ON s.line_id = w.line_id) b
             WHERE active <> active_now OR waiting <> waiting_now OR enqueued <> COALESCE(enqueued_now, enqueued)
                OR completed <> COALESCE(completed_now, completed) OR removed <> COALESCE(removed_now, removed)
        """,
    ),
    Invariant(
        name="line_log_active",
        claim="Each row of a line's log tells how many held a slot, as the rows before it say.",
        reads=Reads.ADMISSIONS,
        statement="""
            SELECT line_id, n, op, execution_id, active, counted FROM (
                SELECT a.line_id, a.n, a.op, a.execution_id, a.active,
                       w.active + sum((a.op = 'admit')::int - (a.op = 'release')::int)
                                  OVER (PARTITION BY a.line_id ORDER BY a.n) AS counted
                  FROM line_windows($1) w JOIN admission_log a ON a.line_id = w.line_id AND a.n > w.n) c
             WHERE active <> counted
        """,
    ),
    Invariant(
        name="line_limit",
        claim="Nobody was admitted when as many as the limit in force held a slot.",
        reads=Reads.ADMISSIONS,
        statement="""
            SELECT line_id, n, execution_id, active, limit_in_force FROM admissions_since($1)
             WHERE op = 'admit' AND active > limit_in_force
        """,
    ),
    Invariant(
        name="line_rate",
        claim="No more were admitted in any window of time than the rate limit in force allows.",
        reads=Reads.ADMISSIONS,
        statement="""
            WITH limited AS (
                SELECT w.line_id, w.n, w.recent, (p.rate_limit ->> 'max')::int AS most, p.updated,
                       make_interval(secs => (p.rate_limit ->> 'window_seconds')::float8) AS span
                  FROM line_windows($1) w JOIN line l ON l.id = w.line_id
                  JOIN policy p ON p.id = l.policy_id AND p.enabled AND p.rate_limit ->> 'method' = 'delay'
            ), admitted AS (
                SELECT b.line_id, b.most, b.span, b.updated, a.n, a.execution_id, a.at
                  FROM limited b JOIN admission_log a ON a.line_id = b.line_id AND a.n > b.n AND a.op = 'admit'
                UNION ALL
                SELECT b.line_id, b.most, b.span, b.updated, 0, NULL, r.at
                  FROM limited b CROSS JOIN LATERAL unnest(b.recent) r (at)
            ), spaced AS (
                SELECT *, lag(at, most) OVER (PARTITION BY line_id ORDER BY at, n) AS earlier FROM admitted
            )
            SELECT line_id, n, execution_id, at::text AS at, earlier::text AS earlier FROM spaced
             WHERE execution_id IS NOT NULL AND earlier > updated AND at < earlier + span
        """,
    ),
    Invariant(
        name="line_pause",
        claim="A paused line admits nobody.",
        reads=Reads.ADMISSIONS,
        statement="""
            SELECT line_id, n, execution_id FROM (
                SELECT a.line_id, a.n, a.op, a.execution_id,
                       COALESCE(max(a.n) FILTER (WHERE a.op = 'pause') OVER past,
                                CASE WHEN w.paused THEN w.n END) AS paused_n,
                       COALESCE(max(a.n) FILTER (WHERE a.op = 'limit') OVER past, -1) AS resumed_n
                  FROM line_windows($1) w JOIN admission_log a ON a.line_id = w.line_id AND a.n > w.n
                WINDOW past AS (PARTITION BY a.line_id ORDER BY a.n)) t
             WHERE op = 'admit' AND paused_n > resumed_n
        """,
    ),
    Invariant(
        name="line_places",
        claim="Whoever joins a line gets a place behind all that were given before.",
        reads=Reads.ADMISSIONS,
        statement="""
            SELECT line_id, n, execution_id, seq, seq_before FROM (
                SELECT a.line_id, a.n, a.op, a.execution_id, a.seq,
                       GREATEST(w.last_seq, max(a.seq) OVER (PARTITION BY a.line_id ORDER BY a.n
                                                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
                       AS seq_before
                  FROM line_windows($1) w JOIN admission_log a ON a.line_id = w.line_id AND a.n > w.n
                 WHERE a.op IN ('enq', 'rejoin')) j
             WHERE op = 'enq' AND seq <= seq_before
        """,
    ),
    Invariant(
        name="line_order",
        claim="Those of one priority leave a line in the order of their places.",
        reads=Reads.ADMISSIONS,
        statement="""
            WITH log AS (
                SELECT a.line_id, a.n, a.op, a.execution_id, a.seq, a.priority,
                       lead(a.n) OVER own AS next_n, lead(a.op) OVER own AS next_op, lag(a.op) OVER own AS op_before,
                       GREATEST(w.last_seq, max(a.seq) FILTER (WHERE a.op IN ('enq', 'rejoin')) OVER (
                                    PARTITION BY a.line_id ORDER BY a.n
                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS seq_before
                  FROM line_windows($1) w JOIN admission_log a ON a.line_id = w.line_id AND a.n > w.n
                 WHERE a.op IN ('enq', 'rejoin', 'admit', 'remove', 'release')
                WINDOW own AS (PARTITION BY a.line_id, a.execution_id ORDER BY a.n)
            ), stays AS MATERIALIZED (
                -- Who waited: from joining, if that is behind the checkpoint, to being admitted or removed, if that
                -- has happened. Who came back to an old place was not there all the time since it was given.
                SELECT line_id, execution_id, seq, priority, n AS joined_n, next_n AS left_n, next_op AS left_by,
                       op = 'rejoin' AND seq <= seq_before AS returned
                  FROM log WHERE op IN ('enq', 'rejoin')
                UNION ALL
                SELECT line_id, execution_id, seq, priority, 0, n, op, false
                  FROM log WHERE op IN ('admit', 'remove') AND op_before IS NULL
            ), heads AS (
                SELECT e.line_id, NULL::bigint, min(e.seq), e.priority, 0, NULL::bigint, NULL, false
                  FROM line_windows($1) w JOIN line_entry e ON e.line_id = w.line_id AND e.state = 'waiting'
                 WHERE NOT EXISTS (SELECT 1 FROM stays s WHERE s.returned AND s.execution_id = e.execution_id)
                 GROUP BY e.line_id, e.priority
            ), passed AS (
                SELECT *, max(COALESCE(left_n, 9223372036854775807)) FILTER (WHERE NOT returned) OVER (
                              PARTITION BY line_id, priority ORDER BY seq, joined_n
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier_left_n
                  FROM (SELECT * FROM stays UNION ALL SELECT * FROM heads) everybody
            )
            SELECT line_id, execution_id, seq, priority FROM passed
             WHERE left_by = 'admit' AND earlier_left_n > left_n
            UNION ALL
            SELECT s.line_id, o.execution_id, o.seq, o.priority
              FROM stays s
             CROSS JOIN LATERAL (SELECT a.execution_id, a.seq, a.priority FROM admission_log a
                                  WHERE a.line_id = s.line_id AND a.n > s.joined_n
                                    AND a.n < COALESCE(s.left_n, 9223372036854775807)
                                    AND a.op = 'admit' AND a.priority = s.priority AND a.seq > s.seq
                                  LIMIT 1) o
             WHERE s.returned
        """,
    ),
    Invariant(
        name="line_priority",
        claim="Nobody is admitted while somebody of a higher priority waits in the same line.",
        reads=Reads.ADMISSIONS,
        statement="""
            WITH log AS MATERIALIZED (
                SELECT line_id, n, op, execution_id, seq, priority,
                       CASE WHEN op IN ('enq', 'rejoin') THEN 1 ELSE -1 END AS came
                  FROM admissions_since($1) WHERE op IN ('enq', 'rejoin', 'admit', 'remove')
            ), standing AS MATERIALIZED (
                SELECT e.line_id, e.priority, count(*) AS waiting
                  FROM line_windows($1) w JOIN line_entry e ON e.line_id = w.line_id AND e.state = 'waiting'
                 GROUP BY e.line_id, e.priority
            ), priorities AS (
                SELECT line_id, priority FROM log UNION SELECT line_id, priority FROM standing
            ), levels AS MATERIALIZED (
                -- Every priority of a line but the highest, and how many wait above it now.
                SELECT p.line_id, p.priority,
                       COALESCE((SELECT sum(s.waiting) FROM standing s
                                  WHERE s.line_id = p.line_id AND s.priority > p.priority), 0) AS above_now
                  FROM priorities p
                 WHERE EXISTS (SELECT 1 FROM priorities h WHERE h.line_id = p.line_id AND h.priority > p.priority)
            ), counted AS (
                -- Back from now: who waited above, just before each row.
                SELECT g.*, v.priority AS level,
                       v.above_now - COALESCE(sum(g.came) FILTER (WHERE g.priority > v.priority)
                                              OVER (PARTITION BY g.line_id, v.priority ORDER BY g.n DESC), 0) AS above
                  FROM levels v JOIN log g ON g.line_id = v.line_id
            )
            SELECT line_id, n, execution_id, priority, above AS waiting_above FROM counted
             WHERE op = 'admit' AND priority = level AND above > 0
        """,
    ),
)
