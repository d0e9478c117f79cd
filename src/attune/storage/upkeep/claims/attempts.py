"""What must be true of the moves and attempts of executions."""

from collections.abc import Sequence

from attune.storage.upkeep.claims.invariant import Invariant, Reads

ATTEMPTS: Sequence[Invariant] = (
    Invariant(
        name="terminal_never_left",
        claim="A terminal status is written once and never left.",
        reads=Reads.HISTORY,
        statement="""
            SELECT execution_id, from_status, to_status, at::text AS at FROM execution_history
             WHERE at >= $1 AND from_status IN ('succeeded', 'failed', 'timeout', 'cancelled')
        """,
    ),
    Invariant(
        name="moves_are_legal",
        claim="Only the moves of the published state machine occur.",
        reads=Reads.HISTORY,
        statement="""
            SELECT execution_id, from_status, to_status, at::text AS at FROM execution_history
             WHERE at >= $1 AND CASE WHEN from_status IS NULL THEN to_status <> ALL (legal_births())
                                     ELSE from_status || '>' || to_status <> ALL (legal_moves()) END
        """,
    ),
    Invariant(
        name="moves_follow_each_other",
        claim="Each move begins where the one before it led.",
        reads=Reads.HISTORY,
        statement="""
            SELECT execution_id, led_to, from_status, to_status FROM (
                SELECT *, lag(to_status) OVER (PARTITION BY execution_id ORDER BY id) AS led_to FROM moves_since($1)) m
             WHERE led_to IS NOT NULL AND from_status IS DISTINCT FROM led_to
        """,
    ),
    Invariant(
        name="one_end_per_execution",
        claim="An execution ends at most once.",
        reads=Reads.HISTORY,
        statement="""
            SELECT execution_id, count(*) AS ends FROM moves_since($1)
             WHERE to_status IN ('succeeded', 'failed', 'timeout', 'cancelled')
             GROUP BY execution_id HAVING count(*) > 1
        """,
    ),
    Invariant(
        name="one_start_per_attempt",
        claim="An attempt is started at most once.",
        reads=Reads.HISTORY,
        statement="""
            SELECT execution_id, attempt, count(*) AS starts FROM moves_since($1)
             WHERE to_status = 'running' GROUP BY execution_id, attempt HAVING count(*) > 1
        """,
    ),
    Invariant(
        name="one_placement_per_attempt",
        claim="An attempt is placed exactly once, so its number is a fence.",
        reads=Reads.HISTORY,
        statement="""
            SELECT execution_id, attempt, count(*) AS placements FROM moves_since($1)
             WHERE to_status = 'scheduled' GROUP BY execution_id, attempt HAVING count(*) > 1
        """,
    ),
    Invariant(
        name="attempts_count_placements",
        claim="The number of the attempt grows by one with each placement, and never otherwise.",
        reads=Reads.HISTORY,
        statement="""
            SELECT execution_id, attempt_before, attempt, to_status FROM (
                SELECT *, lag(attempt) OVER (PARTITION BY execution_id ORDER BY id) AS attempt_before
                  FROM moves_since($1)) m
             WHERE attempt <> attempt_before + (to_status = 'scheduled')::int
        """,
    ),
    Invariant(
        name="start_was_placed",
        claim="Only what was placed on a worker is started; a workflow runs on none.",
        reads=Reads.HISTORY,
        statement="""
            SELECT h.execution_id, h.from_status, h.attempt, h.at::text AS at
              FROM execution_history h JOIN execution e ON e.id = h.execution_id
             WHERE h.at >= $1 AND h.to_status = 'running' AND h.from_status <> 'scheduled' AND e.runner <> 'workflow'
        """,
    ),
    Invariant(
        name="tries_count_starts",
        claim="An execution was tried as often as it was started, and started no more often than placed.",
        reads=Reads.HISTORY,
        statement="""
            SELECT e.id AS execution_id, e.tries, e.attempt, m.starts
              FROM (SELECT execution_id, count(*) FILTER (WHERE to_status = 'running') AS starts,
                           bool_or(from_status IS NULL) AS whole
                      FROM moves_since($1) GROUP BY execution_id) m
              JOIN execution e ON e.id = m.execution_id
             WHERE (m.whole AND m.starts <> e.tries) OR (e.tries > e.attempt AND e.runner <> 'workflow')
        """,
    ),
    Invariant(
        name="attempts_within_tries",
        claim="No execution is tried more often than its policy, or the bound for lost workers, allows.",
        reads=Reads.HISTORY,
        statement="""
            SELECT DISTINCT e.id AS execution_id, e.tries, e.max_attempts
              FROM execution_history h JOIN execution e ON e.id = h.execution_id
             WHERE h.at >= $1 AND h.to_status = 'running' AND e.tries > GREATEST(e.max_attempts, 10)
        """,
    ),
    Invariant(
        name="history_agrees",
        claim="The last move recorded for a live execution led to where it stands.",
        reads=Reads.HISTORY,
        statement="""
            WITH suspects AS MATERIALIZED (
                -- A move is recorded within the transaction that makes it, so one day's partition has it.
                SELECT e.id, e.status, e.attempt
                  FROM execution e
                  LEFT JOIN LATERAL (SELECT to_status, attempt FROM execution_history h
                                      WHERE h.execution_id = e.id AND h.at >= e.updated
                                        AND h.at < e.updated + interval '1 hour'
                                      ORDER BY h.id DESC LIMIT 1) h ON true
                 -- Who was queued before was compared before, and has an entry as long as it is.
                 WHERE e.ended_at IS NULL AND (e.status <> 'queued' OR e.updated >= $1)
                   AND (h.to_status IS DISTINCT FROM e.status OR h.attempt IS DISTINCT FROM e.attempt)
            )
            SELECT e.id AS execution_id, e.status, e.attempt, h.to_status, h.attempt AS recorded_attempt
              FROM suspects e
              JOIN LATERAL (SELECT to_status, attempt FROM execution_history h
                             WHERE h.execution_id = e.id ORDER BY h.id DESC LIMIT 1) h ON true
             WHERE h.to_status <> e.status OR h.attempt <> e.attempt
        """,
    ),
    Invariant(
        name="end_agrees",
        claim="What ended stands where the move that ended it led.",
        reads=Reads.HISTORY,
        statement="""
            SELECT h.execution_id, h.to_status, e.status
              FROM execution_history h JOIN execution e ON e.id = h.execution_id
             WHERE h.at >= $1 AND h.to_status IN ('succeeded', 'failed', 'timeout', 'cancelled')
               AND e.status <> h.to_status
        """,
    ),
)
