"""What must always be true of the data, as statements that return the rows which break it.

The same statements run in tests, under faults and on production data. Each has a page section in
`docs/reference/invariants.md`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.domain.json_values import Json
from attune.storage.tx import Tx

# A check shows at most this many offenders.
ROWS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A claim about the data and the statement that finds what contradicts it."""

    name: str
    claim: str
    statement: str


INVARIANTS: Sequence[Invariant] = (
    Invariant(
        name="terminal_never_left",
        claim="A terminal status is written once and never left.",
        statement="""
            SELECT execution_id, from_status, to_status, at::text AS at FROM execution_history
             WHERE from_status IN ('succeeded', 'failed', 'timeout', 'cancelled')
        """,
    ),
    Invariant(
        name="moves_are_legal",
        claim="Only the moves of the published state machine occur.",
        statement="""
            SELECT execution_id, from_status, to_status, at::text AS at FROM execution_history
             WHERE from_status IS NOT NULL AND from_status || '>' || to_status <> ALL (legal_moves())
        """,
    ),
    Invariant(
        name="one_end_per_execution",
        claim="An execution ends at most once.",
        statement="""
            SELECT execution_id, count(*) AS ends FROM execution_history
             WHERE to_status IN ('succeeded', 'failed', 'timeout', 'cancelled')
             GROUP BY execution_id HAVING count(*) > 1
        """,
    ),
    Invariant(
        name="one_start_per_attempt",
        claim="An attempt is started at most once.",
        statement="""
            SELECT execution_id, attempt, count(*) AS starts FROM execution_history
             WHERE to_status = 'running' GROUP BY execution_id, attempt HAVING count(*) > 1
        """,
    ),
    Invariant(
        name="one_placement_per_attempt",
        claim="An attempt is placed exactly once, so its number is a fence.",
        statement="""
            SELECT execution_id, attempt, count(*) AS placements FROM execution_history
             WHERE to_status = 'scheduled' GROUP BY execution_id, attempt HAVING count(*) > 1
        """,
    ),
    Invariant(
        name="attempts_within_tries",
        claim="No execution is tried more often than its policy, or the bound for lost workers, allows.",
        statement="""
            SELECT id AS execution_id, tries, max_attempts FROM execution WHERE tries > GREATEST(max_attempts, 10)
        """,
    ),
    Invariant(
        name="assigned_has_assignment",
        claim="What is scheduled, running or canceling on a worker has its assignment, of the same attempt.",
        statement="""
            SELECT e.id AS execution_id, e.status, e.attempt, a.attempt AS assigned_attempt
              FROM execution e LEFT JOIN assignment a ON a.execution_id = e.id
             WHERE e.ended_at IS NULL AND e.status IN ('scheduled', 'running', 'canceling')
               AND e.runner NOT IN ('workflow', 'inquiry') AND a.attempt IS DISTINCT FROM e.attempt
        """,
    ),
    Invariant(
        name="assignment_has_execution",
        claim="An assignment belongs to an execution that is on a worker.",
        statement="""
            SELECT a.execution_id, e.status FROM assignment a LEFT JOIN execution e ON e.id = a.execution_id
             WHERE e.id IS NULL OR e.status NOT IN ('scheduled', 'running', 'canceling')
        """,
    ),
    Invariant(
        name="started_has_lease",
        claim="A started attempt has a lease, and only a started one does.",
        statement="""
            SELECT e.id AS execution_id, e.status FROM execution e JOIN assignment a ON a.execution_id = e.id
             WHERE (e.status = 'scheduled') <> (a.lease_until IS NULL)
        """,
    ),
    Invariant(
        name="scheduling_is_unplaced",
        claim="What waits for a worker stands in the list of those who wait, and nobody else does.",
        statement="""
            SELECT COALESCE(e.id, u.execution_id) AS execution_id, e.status
              FROM (SELECT id, status FROM execution WHERE ended_at IS NULL AND status = 'scheduling') e
              FULL JOIN unplaced u ON u.execution_id = e.id
             WHERE e.id IS NULL OR u.execution_id IS NULL
        """,
    ),
    Invariant(
        name="history_agrees",
        claim="The last move recorded for a live execution led to where it stands.",
        statement="""
            SELECT e.id AS execution_id, e.status, h.to_status
              FROM execution e
              JOIN LATERAL (SELECT to_status, attempt FROM execution_history h
                             WHERE h.execution_id = e.id ORDER BY h.id DESC LIMIT 1) h ON true
             WHERE e.ended_at IS NULL AND (h.to_status <> e.status OR h.attempt <> e.attempt)
        """,
    ),
    Invariant(
        name="outbox_moves",
        claim="No message that is due waits longer than a minute for its consumer; a worker's own have their TTL.",
        statement="""
            SELECT id, topic, type, deliveries, not_before::text AS not_before FROM outbox
             WHERE not_before < now() - interval '60 seconds'
               AND topic NOT LIKE 'execution.dispatch.%' AND topic NOT LIKE 'execution.cancel.%'
        """,
    ),
    Invariant(
        name="default_partitions_empty",
        claim="Every row found the partition of its day.",
        statement="""
            SELECT 'execution_history' AS "table", count(*) AS rows FROM execution_history_default HAVING count(*) > 0
            UNION ALL
            SELECT 'execution_log', count(*) FROM execution_log_default HAVING count(*) > 0
            UNION ALL
            SELECT 'admission_log', count(*) FROM admission_log_default HAVING count(*) > 0
            UNION ALL
            SELECT 'audit_log', count(*) FROM audit_log_default HAVING count(*) > 0
        """,
    ),
    Invariant(
        name="line_counts_agree",
        claim="A line's counters are the number of its entries.",
        statement="""
            SELECT l.id AS line_id, l.active, l.waiting, c.active AS active_entries, c.waiting AS waiting_entries
              FROM line l
              JOIN LATERAL (SELECT count(*) FILTER (WHERE state = 'active') AS active,
                                   count(*) FILTER (WHERE state = 'waiting') AS waiting
                              FROM line_entry e WHERE e.line_id = l.id) c ON true
             WHERE l.active <> c.active OR l.waiting <> c.waiting
        """,
    ),
    Invariant(
        name="line_limit",
        claim="Nobody was admitted when as many as the limit in force held a slot.",
        statement="""
            SELECT line_id, n, execution_id, active, limit_in_force FROM admission_log
             WHERE op = 'admit' AND active > limit_in_force
        """,
    ),
    Invariant(
        name="line_order",
        claim="Those of one priority leave a line in the order of their places.",
        statement="""
            WITH stays AS (
                -- Each wait in a line: from joining to being admitted or removed.
                SELECT line_id, execution_id, seq, priority, n AS joined_n,
                       lead(n) OVER (PARTITION BY line_id, execution_id ORDER BY n) AS left_n,
                       lead(op) OVER (PARTITION BY line_id, execution_id ORDER BY n) AS left_by, op
                  FROM admission_log WHERE op IN ('enq', 'rejoin', 'admit', 'remove', 'release')
            ), admitted AS (
                SELECT line_id, execution_id, seq, priority, joined_n, left_n,
                       max(left_n) OVER (PARTITION BY line_id, priority ORDER BY seq, joined_n
                                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier_left_n
                  FROM stays WHERE op = 'enq' AND left_by = 'admit'
            )
            SELECT line_id, execution_id, seq, priority FROM admitted WHERE earlier_left_n > left_n
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
        name="queued_has_entry",
        claim="What is queued waits in a line.",
        statement="""
            SELECT e.id AS execution_id, n.state FROM execution e LEFT JOIN line_entry n ON n.execution_id = e.id
             WHERE e.ended_at IS NULL AND e.status = 'queued' AND n.state IS DISTINCT FROM 'waiting'
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


async def find_violations(tx: Tx, invariant: Invariant) -> tuple[int, list[dict[str, Json]]]:
    """How many rows break an invariant (counted up to a limit), and the first of them."""
    rows = await tx.fetch(invariant.statement + f" LIMIT {ROWS_MAX * 50}")
    return len(rows), [dict(row) for row in rows[:ROWS_MAX]]
