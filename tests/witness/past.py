"""A database that has lived: executions that ended over the last days with everything recorded of them, and waiters."""

from __future__ import annotations

from collections import Counter

from attune.storage.tx import Tx

LINES = 50
DAYS = 6


async def make_past(tx: Tx, *, ended: int, waiting: int) -> None:
    """Set-based, so that a million takes a minute; what it records is what the platform would have recorded."""
    await tx.execute("SET LOCAL statement_timeout = 0")
    await tx.execute("SET LOCAL synchronous_commit = off")
    await _make_days(tx)
    await tx.execute(
        """
        INSERT INTO line (scope, group_key, group_hash, max_concurrent, paused, waiting, next_seq, next_n,
                          total_enqueued, total_completed)
        SELECT 'action:1', 'past ' || g, sha256(g::text::bytea), 1, true, $3::int / $1::int,
               ($2::int + $3::int) / $1::int + 1, 3 * $2::int / $1::int + 1 + $3::int / $1::int + 1,
               ($2::int + $3::int) / $1::int, $2::int / $1::int
          FROM generate_series(1, $1::int) g
        """,
        LINES,
        ended,
        waiting,
    )
    # Executions and their history are written side by side; the trigger would record them a second time.
    await tx.execute("SET LOCAL session_replication_role = replica")
    await tx.execute(
        """
        CREATE TEMP TABLE past ON COMMIT DROP AS
        SELECT l.id AS line_id, s AS seq,
               (SELECT count(*) FROM execution) + row_number() OVER (ORDER BY s, l.id) AS position,
               s <= $1::int / $3::int AS ended,
               now() - make_interval(secs => $4 * 86400.0 * (1 - s::float8 / (($1::int + $2::int) / $3::int + 1))) AS at
          FROM (SELECT id FROM line WHERE group_key LIKE 'past %') l
         CROSS JOIN generate_series(1, ($1::int + $2::int) / $3::int) s
        """,
        ended,
        waiting,
        LINES,
        DAYS,
    )
    await _write(tx)


async def _make_days(tx: Tx) -> None:
    await tx.execute(
        """
        DO $$ DECLARE day date; parent text; BEGIN
            SET LOCAL timezone = 'UTC';
            FOR day, parent IN SELECT current_date - back, p
                                 FROM generate_series(1, 7) back, unnest(ARRAY['execution_history', 'admission_log']) p
            LOOP
                EXECUTE format('CREATE TABLE attune.%I PARTITION OF attune.%I FOR VALUES FROM (%L) TO (%L)',
                               parent || '_' || to_char(day, 'YYYYMMDD'), parent,
                               day::timestamptz, (day + 1)::timestamptz);
            END LOOP;
        END $$
        """
    )


async def _write(tx: Tx) -> None:
    await tx.execute(
        """
        INSERT INTO execution (id, action, action_ref, runner, status, line_id, line_seq, attempt, tries, placements,
                               created, updated, queued_at, scheduled_at, started_at, ended_at)
        OVERRIDING SYSTEM VALUE
        SELECT position, 1, 'demo.work', 'native', CASE WHEN ended THEN 'succeeded' ELSE 'queued' END, line_id, seq,
               ended::int, ended::int, ended::int, at, at, at, CASE WHEN ended THEN at END, CASE WHEN ended THEN at END,
               CASE WHEN ended THEN at END
          FROM past ORDER BY position
        """
    )
    await tx.execute("SELECT setval('execution_id_seq', (SELECT max(position) FROM past))")
    await tx.execute(
        """
        INSERT INTO execution_history (execution_id, from_status, to_status, attempt, actor, reason, at)
        SELECT p.position, m.came_from, m.led_to, m.attempt, 'past', '', p.at
          FROM past p
          JOIN (VALUES (1, NULL, 'queued', 0), (2, 'queued', 'scheduled', 1), (3, 'scheduled', 'running', 1),
                       (4, 'running', 'succeeded', 1)) m (step, came_from, led_to, attempt) ON m.step = 1 OR p.ended
         ORDER BY p.position, m.step
        """
    )
    await tx.execute(
        """
        WITH numbered AS (SELECT *, count(*) FILTER (WHERE ended) OVER (PARTITION BY line_id) AS all_ended FROM past)
        INSERT INTO admission_log (line_id, n, op, execution_id, seq, priority, limit_in_force, active, at)
        SELECT p.line_id, CASE WHEN p.ended THEN 3 * (p.seq - 1) + m.step ELSE 2 * p.all_ended + p.seq + 1 END, m.op,
               p.position, p.seq, 0, 1, (m.op = 'admit')::int, p.at
          FROM numbered p
          JOIN (VALUES (1, 'enq'), (2, 'admit'), (3, 'release')) m (step, op) ON m.step = 1 OR p.ended
         ORDER BY p.position, m.step
        """
    )
    await tx.execute(
        """
        INSERT INTO admission_log (line_id, n, op, limit_in_force, active)
        SELECT line_id, 3 * count(*) + 1, 'pause', 1, 0 FROM past WHERE ended GROUP BY line_id
        """
    )
    await tx.execute(
        """
        INSERT INTO line_entry (execution_id, line_id, action_id, seq, priority, state, enqueued_at)
        SELECT position, line_id, 1, seq, 0, 'waiting', at FROM past WHERE NOT ended
        """
    )


async def count_read(tx: Tx) -> Counter[str]:
    """How many entries and rows this connection has read lately of what grows with the past."""
    rows = await tx.fetch(
        """
        SELECT c.relname, pg_stat_get_xact_tuples_returned(c.oid) AS tuples
          FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
          LEFT JOIN pg_am m ON m.oid = c.relam
          JOIN pg_class t ON t.oid = COALESCE(i.indrelid, c.oid)
         WHERE c.relkind IN ('r', 'i') AND m.amname IS DISTINCT FROM 'brin'
           AND (t.relname IN ('execution', 'line_entry') OR t.relname ~ '^(execution_history|admission_log)_')
        """
    )
    return Counter({row["relname"]: row["tuples"] for row in rows})
