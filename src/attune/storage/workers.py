"""Rows of `worker`: who can run what, whether it is alive, and how much it has to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from attune.domain.json_values import Json
from attune.domain.placement import STALE_INTERVALS
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a worker says about itself when it starts."""

    name: str
    instance: UUID
    runtimes: Sequence[str]
    labels: Mapping[str, Json]
    capacity: int
    # The most it can give.
    isolation: str
    heartbeat_interval: float
    host: str
    pid: int
    version: str
    # What an action gets that asks for nothing.
    isolation_usual: str = "none"
    # A sentence for each runtime that was looked for: which one it is, or why it is not offered.
    runtime_details: Mapping[str, Json] = field(default_factory=dict)


async def register(tx: Tx, worker: Registration) -> int:
    """Insert, or take over the row of that name: a reused name is a new instance, not the same worker."""
    worker_id: int = await tx.fetch_value(
        """
        INSERT INTO worker (name, instance, runtimes, labels, capacity, isolation, status, heartbeat_interval,
                            host, pid, version, isolation_usual, runtime_details)
        VALUES ($1, $2, $3, $4, $5, $6, 'active', $7, $8, $9, $10, $11, $12)
        ON CONFLICT (name) DO UPDATE
           SET instance = EXCLUDED.instance, runtimes = EXCLUDED.runtimes, labels = EXCLUDED.labels,
               capacity = EXCLUDED.capacity, isolation = EXCLUDED.isolation,
               isolation_usual = EXCLUDED.isolation_usual, runtime_details = EXCLUDED.runtime_details,
               -- What an earlier start said of itself is not known of this one.
               cordoned = worker.cordoned AND worker.cordon_reason IS NULL, cordon_reason = NULL,
               status = 'active', marked_full = false, leaving = false, pinged_at = NULL, awaited_since = NULL,
               ponged_at = NULL, heartbeat_interval = EXCLUDED.heartbeat_interval, last_heartbeat = now(),
               host = EXCLUDED.host, pid = EXCLUDED.pid, version = EXCLUDED.version, updated = now()
        RETURNING id
        """,
        worker.name,
        worker.instance,
        list(worker.runtimes),
        worker.labels,
        worker.capacity,
        worker.isolation,
        worker.heartbeat_interval,
        worker.host,
        worker.pid,
        worker.version,
        worker.isolation_usual,
        dict(worker.runtime_details),
    )
    return worker_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """What a heartbeat finds. No status: another process has taken the name over."""

    status: str | None
    revived: bool


async def lock_status(tx: Tx, instance: UUID) -> str | None:
    """The status of one instance, which nobody else changes until the end of the transaction.

    A statement of its own: one that locks a row and then changes it would change the version it saw at its beginning,
    and stand in a circle with whoever waits for the lock of the newer one.
    """
    status: str | None = await tx.fetch_value(
        "SELECT status FROM worker WHERE instance = $1 FOR NO KEY UPDATE", instance
    )
    return status


async def beat(tx: Tx, instance: UUID) -> Beat:
    """Note a heartbeat; a worker that was believed lost and speaks again takes part again."""
    before = await lock_status(tx, instance)
    if before is None:
        return Beat(status=None, revived=False)
    status = await tx.fetch_value(
        """
        UPDATE worker
           SET last_heartbeat = now(),
               status = CASE WHEN status <> 'lost' THEN status WHEN leaving THEN 'draining' ELSE 'active' END
         WHERE instance = $1
        RETURNING status
        """,
        instance,
    )
    return Beat(status=status, revived=before == "lost" and status == "active")


async def change_status(tx: Tx, instance: UUID, status: str, *, leaving: bool) -> bool:
    """Set the status of one instance; the row lock keeps placements from slipping behind it."""
    await tx.execute("SELECT FROM worker WHERE instance = $1 FOR UPDATE", instance)
    changed = await tx.fetch_value(
        "UPDATE worker SET status = $2, leaving = $3, updated = now() WHERE instance = $1 RETURNING id",
        instance,
        status,
        leaving,
    )
    return changed is not None


async def mark_lost_by_pid(tx: Tx, name: str, pid: int) -> bool:
    """Mark a worker lost whose process, known by name and id, has ended; a successor is not touched."""
    changed = await tx.fetch_value(
        """
        UPDATE worker SET status = 'lost', updated = now()
         WHERE name = $1 AND pid = $2 AND status IN ('active', 'unresponsive', 'draining') RETURNING id
        """,
        name,
        pid,
    )
    return changed is not None


async def mark_stale_lost(tx: Tx) -> list[int]:
    """Mark the workers lost that have not been heard of for too long; while the database was away nobody could be."""
    return await tx.fetch_column(
        """
        UPDATE worker SET status = 'lost', updated = now()
         WHERE status IN ('active', 'unresponsive', 'draining')
           AND GREATEST(last_heartbeat, pg_postmaster_start_time())
               + make_interval(secs => $1 * heartbeat_interval) < now()
        RETURNING id
        """,
        STALE_INTERVALS,
    )


async def set_full(tx: Tx, instance: UUID, *, full: bool) -> None:
    """Keep placement away until a slot is really free, or let it come back."""
    await tx.execute("UPDATE worker SET marked_full = $2 WHERE instance = $1 AND marked_full <> $2", instance, full)


async def count_active(tx: Tx) -> int:
    """How many workers are alive and may be given work."""
    count: int = await tx.fetch_value(
        """
        SELECT count(*) FROM worker
         WHERE status = 'active' AND last_heartbeat + make_interval(secs => $1 * heartbeat_interval) >= now()
        """,
        STALE_INTERVALS,
    )
    return count


async def list_ids(tx: Tx) -> list[int]:
    """Every worker that is not known to be gone."""
    return await tx.fetch_column("SELECT id FROM worker WHERE status NOT IN ('inactive', 'lost') ORDER BY id")
