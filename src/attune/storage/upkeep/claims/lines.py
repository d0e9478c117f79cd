"""What must be true of lines and of those who stand in them, as they are now."""

from collections.abc import Sequence

from attune.storage.upkeep.claims.invariant import Invariant

LINES: Sequence[Invariant] = (
    Invariant(
        name="line_counts_agree",
        claim="A line's counters are the number of its entries.",
        statement="""
            SELECT COALESCE(l.id, c.line_id) AS line_id, l.active, l.waiting,
                   c.active AS active_entries, c.waiting AS waiting_entries
              FROM line l
              FULL JOIN (SELECT line_id, count(*) FILTER (WHERE state = 'active') AS active,
                                count(*) FILTER (WHERE state = 'waiting') AS waiting
                           FROM line_entry GROUP BY line_id) c ON c.line_id = l.id
             WHERE l.id IS NULL OR l.active <> COALESCE(c.active, 0) OR l.waiting <> COALESCE(c.waiting, 0)
        """,
    ),
    Invariant(
        name="line_balances",
        claim="Whoever joined a line completed, was removed, holds a slot or waits.",
        statement="""
            SELECT id AS line_id, total_enqueued, total_completed, total_removed, active, waiting FROM line
             WHERE total_enqueued <> total_completed + total_removed + active + waiting
        """,
    ),
    Invariant(
        name="line_quota",
        claim="No more executions joined a line in a day than its quota allows.",
        statement="""
            SELECT l.id AS line_id, l.day::text AS day, l.day_count, (p.quota ->> 'per_day')::int AS per_day
              FROM line l JOIN policy p ON p.id = l.policy_id AND p.enabled
             WHERE l.day_count > (p.quota ->> 'per_day')::int AND p.updated < l.day::timestamp AT TIME ZONE 'UTC'
        """,
    ),
    Invariant(
        name="queued_has_entry",
        claim="What is queued waits in a line, at the place it was given.",
        statement="""
            SELECT e.id AS execution_id, n.state, e.line_id, e.line_seq, n.line_id AS stands_in, n.seq
              FROM execution e LEFT JOIN line_entry n ON n.execution_id = e.id
             WHERE e.ended_at IS NULL AND e.status = 'queued'
               AND (n.state IS DISTINCT FROM 'waiting' OR n.line_id IS DISTINCT FROM e.line_id
                    OR n.seq IS DISTINCT FROM e.line_seq)
        """,
    ),
    Invariant(
        name="admitted_holds_slot",
        claim="What left a line for a worker holds a slot of that line until it ends or waits outside.",
        statement="""
            SELECT e.id AS execution_id, e.status, e.line_id
              FROM execution e LEFT JOIN line_entry n ON n.execution_id = e.id AND n.state = 'active'
             WHERE e.ended_at IS NULL AND e.status IN ('scheduling', 'scheduled', 'running', 'canceling')
               AND e.line_id IS NOT NULL AND n.execution_id IS NULL
               -- A retry whose policy is gone meanwhile comes from outside and needs no slot.
               AND 'queued' = (SELECT h.to_status FROM execution_history h
                                WHERE h.execution_id = e.id AND h.to_status IN ('requested', 'queued')
                                ORDER BY h.id DESC LIMIT 1)
        """,
    ),
    Invariant(
        name="slot_owner_alive",
        claim="Whoever holds a slot is a live execution, and its line knows it.",
        statement="""
            SELECT n.execution_id, n.line_id, e.status FROM line_entry n LEFT JOIN execution e ON e.id = n.execution_id
             WHERE n.state = 'active' AND n.activated_at < now() - interval '5 seconds'
               AND (e.id IS NULL OR e.status = 'queued' OR e.ended_at < now() - interval '5 seconds')
        """,
    ),
    Invariant(
        name="ended_leaves_line",
        claim="Who ended while waiting does not stand in the line for more than a minute.",
        statement="""
            WITH gone AS MATERIALIZED (
                -- Compared with those who live, who are about as many; those who ended may be any number.
                SELECT n.execution_id, n.line_id FROM line_entry n
                 WHERE n.state = 'waiting'
                   AND NOT EXISTS (SELECT 1 FROM execution e WHERE e.id = n.execution_id AND e.ended_at IS NULL)
            )
            SELECT g.execution_id, g.line_id, e.status, e.ended_at::text AS ended_at
              FROM gone g
              LEFT JOIN LATERAL (SELECT status, ended_at FROM execution WHERE id = g.execution_id OFFSET 0) e ON true
             WHERE e.status IS NULL OR e.ended_at < now() - interval '60 seconds'
        """,
    ),
    Invariant(
        name="no_idle_slot",
        claim="A line with waiters and free slots is not left alone, unless it is paused, held or rate-limited.",
        statement="""
            SELECT id AS line_id, active, waiting, max_concurrent FROM line
             WHERE waiting > 0 AND NOT paused AND NOT held AND (max_concurrent IS NULL OR active < max_concurrent)
               AND last_updated < now() - interval '10 seconds'
               AND (wake_at IS NULL OR wake_at < now() - interval '10 seconds')
        """,
    ),
)
