"""Rows of `assignment`: which attempt is on which worker, under which lease, until when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAssignment:
    """An attempt that was just placed. No instance: pinned work, which any start of that worker may claim."""

    execution_id: int
    attempt: int
    worker_id: int
    worker_instance: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An attempt somebody holds a lease for."""

    execution_id: int
    attempt: int
    lease: UUID


async def insert_many(tx: Tx, new: Sequence[NewAssignment]) -> None:
    """Insert, or replace the assignment of an earlier attempt; sorted by key, so that two writers cannot deadlock."""
    ordered = sorted(new, key=lambda item: item.execution_id)
    await tx.execute(
        """
        INSERT INTO assignment (execution_id, attempt, worker_id, worker_instance)
        SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::uuid[])
        """,
        [item.execution_id for item in ordered],
        [item.attempt for item in ordered],
        [item.worker_id for item in ordered],
        [item.worker_instance for item in ordered],
    )


async def insert_started(
    tx: Tx, new: Sequence[tuple[int, int]], *, worker_id: int, instance: UUID, lease_seconds: float
) -> list[Held]:
    """Insert attempts that are placed on a worker and started by it at once, sorted by key; returns their leases."""
    rows = await tx.fetch(
        """
        INSERT INTO assignment (execution_id, attempt, worker_id, worker_instance, started_at, lease_until, deadline)
        SELECT n.id, n.attempt, $3, $4, now(), now() + make_interval(secs => $5),
               now() + make_interval(secs => e.timeout_seconds)
          FROM unnest($1::bigint[], $2::int[]) AS n (id, attempt) JOIN execution e ON e.id = n.id
         WHERE e.id = ANY($1)
         ORDER BY n.id
        RETURNING execution_id, attempt, lease
        """,
        [item[0] for item in new],
        [item[1] for item in new],
        worker_id,
        instance,
        lease_seconds,
    )
    return [Held(execution_id=row["execution_id"], attempt=row["attempt"], lease=row["lease"]) for row in rows]


async def delete_many(tx: Tx, execution_ids: Sequence[int]) -> None:
    """Forget who had these; the caller has locked the executions."""
    await tx.execute("DELETE FROM assignment WHERE execution_id = ANY($1)", execution_ids)


async def start_many(
    tx: Tx,
    claims: Sequence[tuple[int, int]],
    *,
    worker_id: int,
    instance: UUID,
    lease_seconds: float,
) -> list[Held]:
    """Start the lease of each claim that is this worker's, unstarted and of this attempt."""
    rows = await tx.fetch(
        """
        UPDATE assignment a
           SET started_at = now(), worker_instance = $4, lease_until = now() + make_interval(secs => $5),
               deadline = now() + make_interval(secs => e.timeout_seconds)
          FROM unnest($1::bigint[], $2::int[]) AS c (id, attempt)
          JOIN execution e ON e.id = c.id
         WHERE a.execution_id = c.id AND a.execution_id = ANY($1) AND a.attempt = c.attempt AND a.worker_id = $3
           AND a.started_at IS NULL AND (a.worker_instance IS NULL OR a.worker_instance = $4)
        RETURNING a.execution_id, a.attempt, a.lease
        """,
        [claim[0] for claim in claims],
        [claim[1] for claim in claims],
        worker_id,
        instance,
        lease_seconds,
    )
    return [Held(execution_id=row["execution_id"], attempt=row["attempt"], lease=row["lease"]) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """What the database says about an attempt on this worker, after a heartbeat."""

    execution_id: int
    attempt: int
    lease: UUID
    known: bool  # the worker listed it
    started: bool
    cancel_requested: bool


async def renew_many(tx: Tx, held: Sequence[Held], *, instance: UUID, lease_seconds: float) -> list[Renewed]:
    """Renew exactly the leases listed; return everything the database holds for this instance, pinned work included.

    What was listed and is not in the answer is fenced.
    """
    rows = await tx.fetch(
        """
        WITH held AS (
            -- In ascending order, or a heartbeat and a batch of reports could wait for each other.
            SELECT a.execution_id
              FROM assignment a JOIN unnest($1::bigint[], $2::int[], $3::uuid[]) AS h (id, attempt, lease)
                ON a.execution_id = h.id AND a.attempt = h.attempt AND a.lease = h.lease
             WHERE a.execution_id = ANY($1) AND a.worker_instance = $4 AND a.started_at IS NOT NULL
             ORDER BY a.execution_id FOR NO KEY UPDATE OF a
        ), renewed AS (
            UPDATE assignment a SET lease_until = now() + make_interval(secs => $5)
              FROM held WHERE a.execution_id = held.execution_id
            RETURNING a.execution_id, a.attempt, a.lease
        ), mine AS (
            SELECT r.execution_id, r.attempt, r.lease, true AS known, true AS started FROM renewed r
            UNION ALL
            SELECT a.execution_id, a.attempt, a.lease, false, a.started_at IS NOT NULL
              FROM assignment a
             WHERE a.worker_id = (SELECT id FROM worker WHERE instance = $4)
               AND (a.worker_instance = $4 OR a.worker_instance IS NULL) AND a.execution_id <> ALL($1)
        )
        SELECT m.execution_id, m.attempt, m.lease, m.known, m.started, e.cancel_requested
          FROM mine m JOIN execution e ON e.id = m.execution_id
        """,
        [item.execution_id for item in held],
        [item.attempt for item in held],
        [item.lease for item in held],
        instance,
        lease_seconds,
    )
    return [Renewed(**dict(row)) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """An attempt whose worker is gone."""

    execution_id: int
    attempt: int
    worker_id: int
    # None: pinned, and never started.
    worker_instance: UUID | None
    started: bool
    cause: str


async def list_lost(tx: Tx, *, limit: int) -> list[Lost]:
    """Started attempts whose lease and grace have run out, and unstarted ones whose worker can never start them.

    A started attempt is judged by its lease alone, whatever the worker's row says: its process may be alive.
    Pinned work that was not started has no instance and waits for its TTL. While the database was away nobody could
    renew or report, so nobody is judged until every worker had the time to do so again.
    """
    rows = await tx.fetch(
        """
        SELECT a.execution_id, a.attempt, a.worker_id, a.worker_instance, a.started_at IS NOT NULL AS started,
               CASE WHEN a.started_at IS NOT NULL THEN 'lease ran out'
                    WHEN w.id IS NULL OR w.instance <> a.worker_instance THEN 'worker was restarted'
                    WHEN w.status IN ('lost', 'inactive') THEN 'worker is ' || w.status
                    ELSE 'worker stopped sending heartbeats' END AS cause
          FROM assignment a LEFT JOIN worker w ON w.id = a.worker_id
         WHERE pg_postmaster_start_time() + make_interval(secs => COALESCE(w.heartbeat_interval, 10)) < now()
           AND ((a.started_at IS NOT NULL
                AND a.lease_until + make_interval(secs => COALESCE(w.heartbeat_interval, 10)) < now())
            OR (a.started_at IS NULL AND a.worker_instance IS NOT NULL
                AND (w.id IS NULL OR w.instance <> a.worker_instance OR w.status IN ('lost', 'inactive')
                     OR w.last_heartbeat + make_interval(secs => 3 * w.heartbeat_interval) < now())))
         ORDER BY a.execution_id LIMIT $1
        """,
        limit,
    )
    return [Lost(**dict(row)) for row in rows]


async def list_unstarted_on(tx: Tx, instance: UUID, *, limit: int) -> list[tuple[int, int]]:
    """What was placed on this worker and not started: execution and attempt."""
    rows = await tx.fetch(
        """
        SELECT a.execution_id, a.attempt FROM assignment a
         WHERE a.worker_id = (SELECT id FROM worker WHERE instance = $1)
           AND a.worker_instance = $1 AND a.started_at IS NULL
         ORDER BY a.execution_id LIMIT $2
        """,
        instance,
        limit,
    )
    return [(row["execution_id"], row["attempt"]) for row in rows]


async def list_overdue_unstarted(tx: Tx, *, timeout_seconds: float, limit: int) -> list[tuple[int, int]]:
    """Placed, not started, and older than the timeout: execution and attempt. Pinned work waits for its TTL.

    While the database was away nobody could start anything, so that time does not count.
    """
    rows = await tx.fetch(
        """
        SELECT execution_id, attempt FROM assignment
         WHERE started_at IS NULL AND worker_instance IS NOT NULL
           AND GREATEST(placed_at, pg_postmaster_start_time()) < now() - make_interval(secs => $1)
         ORDER BY execution_id LIMIT $2
        """,
        timeout_seconds,
        limit,
    )
    return [(row["execution_id"], row["attempt"]) for row in rows]


async def list_past_deadline(tx: Tx, *, limit: int) -> list[tuple[int, int]]:
    """Started attempts that outlived their deadline and the grace in which their worker should have ended them.

    One whose lease ran out was lost before that, and is judged as such: it may be tried again.
    """
    rows = await tx.fetch(
        """
        SELECT a.execution_id, a.attempt
          FROM assignment a LEFT JOIN worker w ON w.id = a.worker_id
         WHERE a.deadline + make_interval(secs => COALESCE(w.heartbeat_interval, 10)) < now() AND a.lease_until >= now()
           AND pg_postmaster_start_time() + make_interval(secs => COALESCE(w.heartbeat_interval, 10)) < now()
         ORDER BY a.execution_id LIMIT $1
        """,
        limit,
    )
    return [(row["execution_id"], row["attempt"]) for row in rows]


async def list_patient(tx: Tx, items: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Which of these unstarted attempts have a time to live of their own that lies ahead, and their worker."""
    rows = await tx.fetch(
        """
        SELECT a.execution_id, a.attempt, a.worker_id
          FROM assignment a
          JOIN unnest($1::bigint[], $2::int[]) AS i (id, attempt) ON a.execution_id = i.id AND a.attempt = i.attempt
          JOIN execution e ON e.id = a.execution_id
         WHERE a.started_at IS NULL AND a.placed_at + make_interval(secs => e.worker_queue_ttl_seconds) > now()
        """,
        [item[0] for item in items],
        [item[1] for item in items],
    )
    return {(row["execution_id"], row["attempt"]): row["worker_id"] for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """An attempt that waited for its worker longer than it may."""

    execution_id: int
    attempt: int
    worker_id: int
    died_at: datetime


async def list_past_own_ttl(tx: Tx, *, pinned_ttl_seconds: float | None, limit: int) -> list[Overdue]:
    """Unstarted attempts that outlived their own time to live, or, pinned and without one, the one given."""
    rows = await tx.fetch(
        """
        SELECT a.execution_id, a.attempt, a.worker_id, a.placed_at + make_interval(secs => t.seconds) AS died_at
          FROM assignment a JOIN execution e ON e.id = a.execution_id
         CROSS JOIN LATERAL (
            SELECT COALESCE(e.worker_queue_ttl_seconds, CASE WHEN e.pinned THEN $1::float8 END) AS seconds) t
         WHERE a.started_at IS NULL AND a.placed_at + make_interval(secs => t.seconds) <= now()
         ORDER BY a.execution_id LIMIT $2
        """,
        pinned_ttl_seconds,
        limit,
    )
    return [Overdue(**dict(row)) for row in rows]
