"""Rows of `line` and `line_entry`: joining under the line's lock, and the one server-side step that admits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from attune.domain.definitions import LimitMethod, OnRetry, RateMethod
from attune.domain.lines import LineKey, LinePolicy, LineState
from attune.domain.placement import Waiting
from attune.storage.tx import Row, Tx


async def find_policies(tx: Tx, action_ids: Sequence[int], *, max_queue_length: int) -> dict[int, LinePolicy]:
    """The most specific enabled policy of each action that has one.

    A workflow obeys only a policy of its own action: what it calls is what a wider limit counts. An inquiry obeys none.
    """
    rows = await tx.fetch(
        """
        SELECT a.id AS action_id, p.id, p.ref, p.scope, p.parameters, p.adaptive IS NOT NULL AS adaptive,
               starting_limit(p.max_concurrent, p.adaptive) AS max_concurrent, p.method, p.rate_limit, p.quota,
               p.max_queue_length, p.on_retry
          FROM action a
          JOIN LATERAL (
            SELECT * FROM policy p
             WHERE p.enabled AND p.scope = ANY(governing_scopes(a.id, a.pack, a.runner))
             ORDER BY CASE WHEN p.scope LIKE 'action:%' THEN 1 WHEN p.scope LIKE 'pack:%' THEN 2 ELSE 3 END,
                      p.priority DESC, p.id
             LIMIT 1) p ON true
         WHERE a.id = ANY($1)
        """,
        action_ids,
    )
    return {row["action_id"]: _policy(row, max_queue_length) for row in rows}


def _policy(row: Row, max_queue_length: int) -> LinePolicy:
    rate = row["rate_limit"] or {}
    return LinePolicy(
        policy_id=row["id"],
        ref=row["ref"],
        scope=row["scope"],
        parameters=tuple(row["parameters"]),
        max_concurrent=row["max_concurrent"],
        adaptive=row["adaptive"],
        method=LimitMethod(row["method"]),
        rate_max=rate.get("max"),
        rate_window_seconds=rate.get("window_seconds"),
        rate_method=RateMethod(rate["method"]) if "method" in rate else None,
        per_day=(row["quota"] or {}).get("per_day"),
        max_queue_length=row["max_queue_length"] if row["max_queue_length"] is not None else max_queue_length,
        keeps_place=row["on_retry"] == OnRetry.FRONT,
    )


async def insert_missing(tx: Tx, wanted: Mapping[LineKey, LinePolicy]) -> None:
    """Make the lines that do not exist yet; sorted by key, so that two writers cannot deadlock."""
    keys = sorted(wanted, key=lambda key: (key.scope, key.group_hash))
    await tx.execute(
        """
        INSERT INTO line (scope, group_key, group_hash, policy_id, max_concurrent)
        SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::int[])
        ON CONFLICT (scope, group_hash) DO NOTHING
        """,
        [key.scope for key in keys],
        [key.group for key in keys],
        [key.group_hash for key in keys],
        [wanted[key].policy_id for key in keys],
        [wanted[key].max_concurrent for key in keys],
    )


async def lock_by_key(tx: Tx, keys: Sequence[LineKey]) -> tuple[dict[LineKey, LineState], datetime]:
    """Lock lines in ascending order of their ids; also the database's time, read after the locks were got.

    If one of them is missing, none is locked: whoever makes lines must hold none, or two could wait for each other.
    """
    rows = await tx.fetch(
        """
        SELECT l.id, l.scope, l.group_key, l.max_concurrent, l.active, l.waiting, l.next_seq, l.recent, l.day,
               l.day_count, clock_timestamp() AS clock
          FROM unnest($1::text[], $2::bytea[]) AS k (scope, hash)
          JOIN line l ON l.scope = k.scope AND l.group_hash = k.hash
         WHERE (SELECT count(*) FROM unnest($1::text[], $2::bytea[]) AS w (scope, hash)
                  JOIN line m ON m.scope = w.scope AND m.group_hash = w.hash) = cardinality($1)
         ORDER BY l.id FOR NO KEY UPDATE OF l
        """,
        [key.scope for key in keys],
        [key.group_hash for key in keys],
    )
    locked = {LineKey(scope=row["scope"], group=row["group_key"]): _state(row) for row in rows}
    return locked, max((row["clock"] for row in rows), default=datetime.min.replace(tzinfo=UTC))


def _state(row: Row) -> LineState:
    return LineState(
        line_id=row["id"],
        limit=row["max_concurrent"],
        active=row["active"],
        waiting=row["waiting"],
        next_seq=row["next_seq"],
        recent=tuple(row["recent"]),
        day=row["day"],
        day_count=row["day_count"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """An execution's place in its line."""

    execution_id: int
    line_id: int
    action_id: int
    seq: int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A line after some have joined, and how many did."""

    line: LineState
    policy: LinePolicy
    count: int


async def save_joined(tx: Tx, lines: Sequence[Joined]) -> None:
    """Write back what joining changed, and take one number of the log for each who joined; the rows are locked.

    Which policy governs a line is read under its lock: the one read before may have been replaced meanwhile.
    """
    await tx.execute(
        """
        UPDATE line l
           SET waiting = n.waiting, total_enqueued = l.total_enqueued + n.joined, next_n = l.next_n + n.joined,
               next_seq = n.next_seq, recent = n.recent, day = n.day, day_count = n.day_count,
               policy_id = COALESCE((SELECT p.id FROM policy p
                                      WHERE p.scope = l.scope AND p.enabled AND p.parameters = n.parameters
                                      ORDER BY p.priority DESC, p.id LIMIT 1), n.policy_id), last_updated = now()
          FROM jsonb_to_recordset($1) AS n (line_id bigint, waiting int, next_seq bigint, recent timestamptz[],
                                            day date, day_count int, policy_id bigint, parameters text[], joined int)
         WHERE l.id = n.line_id
        """,
        [
            {
                "line_id": item.line.line_id,
                "waiting": item.line.waiting,
                "next_seq": item.line.next_seq,
                "recent": [at.isoformat() for at in item.line.recent],
                "day": item.line.day.isoformat() if item.line.day else None,
                "day_count": item.line.day_count,
                "policy_id": item.policy.policy_id,
                "parameters": item.policy.parameters,
                "joined": item.count,
            }
            for item in lines
        ],
    )


async def insert_entries(tx: Tx, entries: Sequence[NewEntry], *, op: str) -> None:
    """Let executions wait in their lines, and log it; the log's numbers are the last ones taken by `save_joined`."""
    await tx.execute(
        """
        WITH joined AS (
            INSERT INTO line_entry (execution_id, line_id, action_id, seq, priority, state)
            SELECT e.execution_id, e.line_id, e.action_id, e.seq, e.priority, 'waiting'
              FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[])
                   AS e (execution_id, line_id, action_id, seq, priority)
             ORDER BY e.execution_id
            RETURNING execution_id, line_id, seq, priority
        )
        INSERT INTO admission_log (line_id, n, op, execution_id, seq, priority, limit_in_force, active)
        SELECT j.line_id, l.next_n - row_number() OVER (PARTITION BY j.line_id ORDER BY j.seq DESC), $6,
               j.execution_id, j.seq, j.priority, l.max_concurrent, l.active
          FROM joined j JOIN line l ON l.id = j.line_id
        """,
        [entry.execution_id for entry in entries],
        [entry.line_id for entry in entries],
        [entry.action_id for entry in entries],
        [entry.seq for entry in entries],
        [entry.priority for entry in entries],
        op,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Who was admitted, with its pool, and which lines want to be looked at again, and when."""

    waiting: Sequence[tuple[Waiting, int]]
    wake_seconds: Mapping[int, float]


async def admit(tx: Tx, line_ids: Sequence[int], ended: Sequence[int], *, limit: int) -> Admitted:
    """The one step: release what ended executions held, then admit heads. Each line admits at most `limit`."""
    rows = await tx.fetch(
        """
        SELECT line_id, execution_id, attempt, action_id, priority, pool, wake_seconds FROM admit_lines($1, $2, $3)
        """,
        line_ids,
        ended,
        limit,
    )
    return Admitted(
        waiting=[(_waiting(row), row["pool"]) for row in rows if row["execution_id"] is not None],
        wake_seconds={row["line_id"]: row["wake_seconds"] for row in rows if row["execution_id"] is None},
    )


def _waiting(row: Row) -> Waiting:
    return Waiting(
        execution_id=row["execution_id"],
        attempt=row["attempt"],
        action_id=row["action_id"],
        priority=row["priority"],
    )


async def release(tx: Tx, execution_ids: Sequence[int]) -> None:
    """Remove the entries of executions that ended or wait outside for a retry; the lines are locked."""
    await tx.execute("SELECT release_entries($1)", execution_ids)


async def list_in_scopes(tx: Tx, scopes: Sequence[str]) -> list[int]:
    """Lines that a changed policy governs and that somebody waits in."""
    return await tx.fetch_column(
        "SELECT id FROM line WHERE scope = ANY($1) AND waiting > 0 ORDER BY id LIMIT 10000", scopes
    )


async def list_held(tx: Tx, *, limit: int) -> list[int]:
    """Lines whose head no living worker could run when it was last looked at."""
    return await tx.fetch_column("SELECT id FROM line WHERE held ORDER BY id LIMIT $1", limit)


async def list_stuck(tx: Tx, *, seconds: float, limit: int) -> list[int]:
    """Lines with waiters and free slots that nothing has happened to for a while; a fault-free run has none.

    One that is held counts if its head could be run by now: it was held in the moment somebody arrived, and neither saw
    the other.
    """
    return await tx.fetch_column(
        """
        SELECT id FROM line
         WHERE waiting > 0 AND NOT paused AND (max_concurrent IS NULL OR active < max_concurrent)
           AND last_updated < now() - make_interval(secs => $1) AND (wake_at IS NULL OR wake_at < now())
           AND (NOT held OR (SELECT has_candidate(e.action_id) FROM line_entry e
                              WHERE e.line_id = line.id AND e.state = 'waiting'
                              ORDER BY e.priority DESC, e.seq LIMIT 1))
         ORDER BY id LIMIT $2
        """,
        seconds,
        limit,
    )


async def list_leaked(tx: Tx, *, seconds: float, limit: int) -> list[tuple[int, int]]:
    """Who ended a while ago and still holds a slot, with the last attempt: the message about the end was lost."""
    rows = await tx.fetch(
        """
        SELECT x.id, x.attempt FROM line_entry e JOIN execution x ON x.id = e.execution_id
         WHERE e.state = 'active' AND x.ended_at < now() - make_interval(secs => $1)
         ORDER BY x.id LIMIT $2
        """,
        seconds,
        limit,
    )
    return [(row["id"], row["attempt"]) for row in rows]


async def delete_idle(tx: Tx, *, seconds: float, limit: int) -> int:
    """Remove lines of groups that are idle, unless a live execution still has its place in one to return to.

    A day's quota that was begun keeps its line until the day is over. What the lines had counted stays with their
    scope; two replicas remove different lines and add to scopes in one order.
    """
    removed: int = await tx.fetch_value(
        """
        WITH removed AS (
            DELETE FROM line WHERE id = ANY(ARRAY(
                SELECT l.id FROM line l
                 WHERE l.active = 0 AND l.waiting = 0 AND NOT l.paused AND l.group_key <> '{}'
                   AND l.last_updated < now() - make_interval(secs => $1)
                   AND (l.day IS NULL OR l.day < (now() AT TIME ZONE 'UTC')::date
                        OR NOT EXISTS (SELECT 1 FROM policy p WHERE p.id = l.policy_id AND p.quota IS NOT NULL))
                   AND NOT EXISTS (SELECT 1 FROM execution e
                                    WHERE e.ended_at IS NULL AND e.not_before IS NOT NULL AND e.line_id = l.id)
                 ORDER BY l.id LIMIT $2 FOR UPDATE SKIP LOCKED))
              AND active = 0 AND waiting = 0
            RETURNING scope, total_enqueued, total_completed, total_removed, last_updated
        ), kept AS (
            INSERT INTO line_remainder AS r (scope, total_enqueued, total_completed, total_removed, last_updated)
            SELECT scope, sum(total_enqueued), sum(total_completed), sum(total_removed), max(last_updated)
              FROM removed GROUP BY scope ORDER BY scope
            ON CONFLICT (scope) DO UPDATE
               SET total_enqueued = r.total_enqueued + EXCLUDED.total_enqueued,
                   total_completed = r.total_completed + EXCLUDED.total_completed,
                   total_removed = r.total_removed + EXCLUDED.total_removed,
                   last_updated = GREATEST(r.last_updated, EXCLUDED.last_updated)
        )
        SELECT count(*) FROM removed
        """,
        seconds,
        limit,
    )
    return removed


# Above this many generations nobody looks for a slot to inherit; the queue timeout is the net.
ANCESTORS_MAX = 20


async def find_held_by_ancestors(tx: Tx, parents: Sequence[int]) -> dict[tuple[int, LineKey], int]:
    """The lines of which a parent, or an ancestor of it, holds a slot, and who it is: the nearest."""
    rows = await tx.fetch(
        """
        WITH RECURSIVE chain AS (
            SELECT x.id AS asked, x.id, x.parent, 1 AS depth FROM execution x WHERE x.id = ANY($1)
            UNION ALL
            SELECT c.asked, x.id, x.parent, c.depth + 1
              FROM chain c JOIN execution x ON x.id = c.parent WHERE c.depth < $2
        )
        SELECT c.asked, c.id AS holder, l.scope, l.group_key
          FROM chain c
          JOIN line_entry e ON e.execution_id = c.id AND e.state = 'active'
          JOIN line l ON l.id = e.line_id
         ORDER BY c.depth DESC
        """,
        parents,
        ANCESTORS_MAX,
    )
    return {(row["asked"], LineKey(scope=row["scope"], group=row["group_key"])): row["holder"] for row in rows}
