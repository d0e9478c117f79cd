"""The facts that explain where an execution is; each statement reads a bounded number of rows."""

from collections.abc import Sequence

from attune.domain.endings.dead_letters import AVOIDED_SECONDS
from attune.domain.execution import Status
from attune.domain.placement import STALE_INTERVALS
from attune.domain.why import Facts, Holder, LineFacts, PoolFacts, QuarantineFacts, WorkerFacts
from attune.storage.tx import Row, Tx

# Who stands further back than this is told that it is at least this far.
POSITION_MAX = 10_000
HOLDERS_MAX = 3
# What the speed of a line is taken from: the end of its log, this much and this old.
LOGGED_MAX = 400
RECENT_SECONDS = 300.0


async def find_facts(tx: Tx, execution_id: int) -> Facts | None:
    """Everything there is to say about an execution; None if there is none of this id."""
    row = await _find_execution(tx, execution_id)
    if row is None:
        return None
    line = await _find_line(tx, execution_id)
    holders = await _list_holders(tx, line["id"]) if line is not None else []
    return Facts(
        now=row["now"],
        execution_id=execution_id,
        status=Status(row["status"]),
        attempt=row["attempt"],
        tries=row["tries"],
        max_attempts=row["max_attempts"],
        error_code=row["error_code"],
        error_message=row["error_message"],
        reason=row["reason"],
        not_before=row["not_before"],
        pinned=row["pinned"],
        inherits_slot_of=row["inherits"],
        scheduled_at=row["scheduled_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        worker=_worker(row),
        line=None if line is None else LineFacts(**dict(line), holders=holders),
        pool=await _read_pool(tx, execution_id, row["runner"]),
        quarantine=_quarantine(row),
    )


def _quarantine(row: Row) -> QuarantineFacts | None:
    if row["quarantined_at"] is None:
        return None
    return QuarantineFacts(action_ref=row["action_ref"], since=row["quarantined_at"], workers_lost=row["workers_lost"])


def _worker(row: Row) -> WorkerFacts | None:
    if row["worker_name"] is None:
        return None
    return WorkerFacts(
        id=row["worker_id"],
        name=row["worker_name"],
        status=row["worker_status"],
        recent_dead_letters=row["recent_dead_letters"],
    )


async def _find_execution(tx: Tx, execution_id: int) -> Row | None:
    return await tx.fetch_row(
        """
        SELECT now() AS now, e.status, e.runner, e.attempt, e.tries, e.max_attempts, e.error ->> 'code' AS error_code,
               e.error ->> 'message' AS error_message, e.change_reason AS reason, e.not_before, e.pinned, e.inherits,
               e.scheduled_at, e.started_at, e.ended_at, w.id AS worker_id, w.name AS worker_name,
               CASE WHEN w.status = 'active' AND w.last_heartbeat < now() - make_interval(
                         secs => $2 * w.heartbeat_interval) THEN 'unresponsive' ELSE w.status END AS worker_status,
               (SELECT count(*) FROM dead_letter d WHERE d.worker_instance = w.instance
                   AND d.parked_at > now() - make_interval(secs => $3)) AS recent_dead_letters,
               e.action_ref, a.quarantined_at, cardinality(a.lost_workers) AS workers_lost
          FROM execution e LEFT JOIN worker w ON w.id = e.worker LEFT JOIN action a ON a.id = e.action
         WHERE e.id = $1
        """,
        execution_id,
        float(STALE_INTERVALS),
        AVOIDED_SECONDS,
    )


async def _find_line(tx: Tx, execution_id: int) -> Row | None:
    """The line in which it waits: its place counted along the line's index, its speed from the end of the log."""
    return await tx.fetch_row(
        """
        WITH logged AS (
            SELECT g.op, g.at FROM admission_log g
             WHERE g.line_id = (SELECT line_id FROM line_entry WHERE execution_id = $1)
             ORDER BY g.n DESC LIMIT $3
        )
        SELECT l.id, COALESCE(a.ref, k.ref, l.scope) || CASE WHEN l.group_key <> '{}' THEN '[' || (
                   SELECT string_agg(key || '=' || COALESCE(value, 'null'), ',' ORDER BY key)
                     FROM jsonb_each_text(l.group_key::jsonb)) || ']' ELSE '' END AS name,
               1 + (SELECT count(*) FROM (
                   (SELECT 1 FROM line_entry b WHERE b.line_id = l.id AND b.state = 'waiting'
                       AND b.priority > e.priority LIMIT $2)
                   UNION ALL
                   (SELECT 1 FROM line_entry b WHERE b.line_id = l.id AND b.state = 'waiting'
                       AND b.priority = e.priority AND b.seq < e.seq LIMIT $2)) ahead)::int AS position,
               l.waiting, l.max_concurrent AS "limit", l.limit_reason, l.active, l.paused, l.paused_by,
               (SELECT max(g.at) FROM logged g WHERE g.op = 'pause' AND l.paused) AS paused_at,
               CASE WHEN l.wake_at > now() THEN l.wake_at END AS rate_limited_until,
               COALESCE((SELECT count(*) FILTER (WHERE g.op = 'release')
                                / GREATEST(1, extract(epoch FROM now() - min(g.at)))
                           FROM logged g WHERE g.at > now() - make_interval(secs => $4)), 0)::float8
                   AS completions_per_second
          FROM line_entry e JOIN line l ON l.id = e.line_id
          LEFT JOIN action a ON a.id = substring(l.scope FROM '^action:([0-9]+)$')::bigint
          LEFT JOIN pack k ON k.id = substring(l.scope FROM '^pack:([0-9]+)$')::bigint
         WHERE e.execution_id = $1 AND e.state = 'waiting'
        """,
        execution_id,
        POSITION_MAX,
        LOGGED_MAX,
        RECENT_SECONDS,
    )


async def _list_holders(tx: Tx, line_id: int) -> Sequence[Holder]:
    rows = await tx.fetch(
        """
        SELECT e.execution_id, w.name AS worker,
               extract(epoch FROM now() - COALESCE(x.started_at, e.activated_at, e.enqueued_at))::float8 AS seconds
          FROM line_entry e
          LEFT JOIN execution x ON x.id = e.execution_id
          LEFT JOIN worker w ON w.id = x.worker
         WHERE e.line_id = $1 AND e.state = 'active'
         ORDER BY e.priority DESC, e.seq LIMIT $2
        """,
        line_id,
        HOLDERS_MAX,
    )
    return [Holder(**dict(row)) for row in rows]


async def _read_pool(tx: Tx, execution_id: int, runner: str) -> PoolFacts:
    row = await tx.fetch_row(
        """
        SELECT a.labels, a.isolation, count(*) FILTER (WHERE w.ok IS NOT NULL) AS with_runtime,
               count(*) FILTER (WHERE w.ok) AS capable,
               COALESCE(sum(w.capacity) FILTER (WHERE w.ok), 0)::int AS capacity,
               COALESCE(sum(w.load) FILTER (WHERE w.ok), 0)::int AS load,
               (SELECT count(*) FROM worker v WHERE is_living(v) AND can_run(v, a)) AS living
          FROM execution e JOIN action a ON a.id = e.action
          LEFT JOIN LATERAL (
            SELECT w.capacity, (SELECT count(*) FROM assignment s WHERE s.worker_id = w.id) AS load,
                   can_run(w, a) AS ok
              FROM worker w
             WHERE w.status = 'active' AND NOT w.cordoned AND a.runner = ANY (w.runtimes)
               AND w.last_heartbeat >= now() - make_interval(secs => $2 * w.heartbeat_interval)) w ON true
         WHERE e.id = $1
         GROUP BY a.id
        """,
        execution_id,
        float(STALE_INTERVALS),
    )
    if row is None:  # The action is gone, and with it what it asked of a worker.
        return PoolFacts(runner=runner, labels={}, isolation=None, with_runtime=0, capable=0, capacity=0, load=0)
    return PoolFacts(runner=runner, **dict(row))
