"""What alerts are judged by, each part in one statement that reads a bounded number of rows, however many wait."""

from collections.abc import Mapping, Sequence

from attune.domain.alerts.catalogue import STALE_SECONDS
from attune.domain.alerts.readings import ActionCounts, LineReading, PlatformReading, Quarantined
from attune.domain.messages import DEAD_TOPIC, MessageType
from attune.domain.placement import STALE_INTERVALS
from attune.storage.tx import Tx

# Dead letters, stale executions and held actions are counted up to this many.
COUNTED_MAX = 10_000
# Of this many lines, those in which most wait, everything is known; and of those there is an alert about.
LINES_MAX = 500
# Actions beyond this many are not watched for failures.
ACTIONS_MAX = 5000
HELD_MAX = 100


async def read_platform(tx: Tx) -> PlatformReading:
    """What there is only one of. What a broker holds is not seen here."""
    row = await tx.fetch_row(
        """
        WITH alive AS (
            SELECT cordoned FROM worker
             WHERE status = 'active' AND last_heartbeat >= now() - make_interval(secs => $1 * heartbeat_interval)
        ), oldest AS (
            SELECT t.topic, extract(epoch FROM now() - h.not_before)::float8 AS seconds
              FROM unnest($2::text[]) AS t (topic)
             CROSS JOIN LATERAL (SELECT o.not_before FROM outbox o WHERE o.topic = t.topic
                                  ORDER BY o.not_before LIMIT 1) h
             ORDER BY h.not_before LIMIT 1
        )
        SELECT (SELECT count(*) FROM alive WHERE NOT cordoned)::int AS active_workers,
               (SELECT count(*) FROM alive WHERE cordoned)::int AS cordoned_workers,
               (SELECT count(*) FROM (SELECT 1 FROM dead_letter WHERE outcome IS NULL LIMIT $3) d)::int
                   AS dead_letters_open,
               (SELECT count(*) FROM (SELECT 1 FROM outbox WHERE topic = $4 LIMIT $3) d)::int AS dead_letters_unhandled,
               (SELECT count(*) FROM (SELECT 1 FROM dead_letter WHERE parked_at > now() - interval '1 minute'
                                       LIMIT $3) d)::int AS dead_letters_last_minute,
               (SELECT count(*) FROM (SELECT 1 FROM assignment WHERE started_at IS NULL
                                       AND placed_at < now() - make_interval(secs => $5) LIMIT $3) s)::int
                   AS stale_executions,
               COALESCE((SELECT seconds FROM oldest), 0) AS outbox_oldest_seconds,
               (SELECT topic FROM oldest) AS outbox_oldest_topic,
               array_remove(ARRAY[
                   CASE WHEN EXISTS (SELECT 1 FROM execution_history_default) THEN 'execution_history' END,
                   CASE WHEN EXISTS (SELECT 1 FROM execution_log_default) THEN 'execution_log' END,
                   CASE WHEN EXISTS (SELECT 1 FROM admission_log_default) THEN 'admission_log' END,
                   CASE WHEN EXISTS (SELECT 1 FROM audit_log_default) THEN 'audit_log' END], NULL)
                   AS default_partitions
        """,
        float(STALE_INTERVALS),
        [*MessageType, DEAD_TOPIC],
        COUNTED_MAX,
        DEAD_TOPIC,
        STALE_SECONDS,
    )
    if row is None:
        raise RuntimeError("a list of scalars always has a row")
    return PlatformReading(**dict(row))


async def list_lines(tx: Tx, *, also: Sequence[int], default_length_max: int) -> list[LineReading]:
    """The lines in which most wait, and these; the longest first. Their own counters tell, nobody is counted."""
    rows = await tx.fetch(
        """
        WITH longest AS (
            SELECT id FROM line WHERE waiting > 0 ORDER BY waiting DESC, id LIMIT $2
        )
        SELECT l.id AS line_id, COALESCE('action:' || a.ref, 'pack:' || k.ref, l.scope) AS scope,
               l.group_key AS "group", l.waiting, l.active, l.total_completed,
               COALESCE(p.max_queue_length, $3) AS length_max,
               l.paused OR COALESCE(l.wake_at > now(), false) AS on_purpose
          FROM line l
          LEFT JOIN policy p ON p.id = l.policy_id AND p.enabled
          LEFT JOIN action a ON a.id = substring(l.scope FROM '^action:([0-9]+)$')::bigint
          LEFT JOIN pack k ON k.id = substring(l.scope FROM '^pack:([0-9]+)$')::bigint
         WHERE l.id = ANY($1) OR l.id IN (SELECT id FROM longest)
         ORDER BY l.waiting DESC, l.id
        """,
        also,
        LINES_MAX,
        default_length_max,
    )
    return [LineReading(**dict(row)) for row in rows]


async def list_quarantined(tx: Tx) -> list[Quarantined]:
    """Actions that are held."""
    rows = await tx.fetch(
        """
        SELECT ref, cardinality(lost_workers) AS workers_lost FROM action WHERE quarantined_at IS NOT NULL
         ORDER BY id LIMIT $1
        """,
        HELD_MAX,
    )
    return [Quarantined(**dict(row)) for row in rows]


async def count_timeouts(tx: Tx) -> float:
    """How many executions ended because a time was up, as all processes counted together."""
    counted: float = await tx.fetch_value(
        "SELECT COALESCE(sum(value), 0) FROM counter WHERE name = 'attune_execution_timeouts_total'"
    )
    return counted


async def count_ends(tx: Tx) -> Mapping[str, ActionCounts]:
    """How the executions of each action ended, as all processes counted together; a cancelled one proves nothing."""
    rows = await tx.fetch(
        """
        SELECT labels ->> 'action' AS ref, sum(value) AS ended,
               COALESCE(sum(value) FILTER (WHERE labels ->> 'status' <> 'succeeded'), 0) AS failed
          FROM counter WHERE name = 'attune_action_executions_total' AND labels ->> 'status' <> 'cancelled'
         GROUP BY 1 ORDER BY 1 LIMIT $1
        """,
        ACTIONS_MAX,
    )
    return {row["ref"]: ActionCounts(ended=row["ended"], failed=row["failed"]) for row in rows}
