"""Workers as people and their programs read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.endings.dead_letters import AVOIDED_SECONDS
from attune.domain.json_values import Json
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """Everything that is shown of a worker."""

    id: int
    name: str
    status: str
    capacity: int
    load: int
    runtimes: Sequence[str]
    # A sentence for each runtime that was looked for: which one it is, or why it is not offered.
    runtime_details: Json
    labels: Json
    # The most it can give, and what an action gets that asks for nothing.
    isolation: str
    isolation_usual: str
    cordoned: bool
    # Why it cordoned itself, if it did.
    cordon_reason: str | None
    # It gave work back for want of a slot, and is passed over until one is free.
    full: bool
    heartbeat_interval: float
    last_heartbeat: datetime
    # The last answer to a ping.
    last_pong: datetime | None
    host: str
    pid: int | None
    version: str
    created: datetime
    # Dispatches that this start of it let expire lately: as long as there are any, others are preferred.
    recent_dead_letters: int


async def find(tx: Tx, worker_id: int) -> WorkerView | None:
    """The worker of this id."""
    row = await tx.fetch_row(
        """
        SELECT w.id, w.name, w.status, w.capacity, w.runtimes, w.runtime_details, w.labels, w.isolation,
               w.isolation_usual, w.cordoned, w.cordon_reason, w.heartbeat_interval, w.last_heartbeat,
               w.marked_full AS "full", w.ponged_at AS last_pong, w.host, w.pid, w.version, w.created,
               (SELECT count(*) FROM assignment a WHERE a.worker_id = w.id) AS load,
               (SELECT count(*) FROM dead_letter d WHERE d.worker_instance = w.instance
                   AND d.parked_at > now() - make_interval(secs => $2)) AS recent_dead_letters
          FROM worker w WHERE w.id = $1
        """,
        worker_id,
        AVOIDED_SECONDS,
    )
    return WorkerView(**dict(row)) if row else None


async def list_page(tx: Tx, *, status: str | None, after: int, limit: int) -> list[WorkerView]:
    """Workers in the order of their ids, of one status if it is named."""
    rows = await tx.fetch(
        """
        SELECT w.id, w.name, w.status, w.capacity, w.runtimes, w.runtime_details, w.labels, w.isolation,
               w.isolation_usual, w.cordoned, w.cordon_reason, w.heartbeat_interval, w.last_heartbeat,
               w.marked_full AS "full", w.ponged_at AS last_pong, w.host, w.pid, w.version, w.created,
               (SELECT count(*) FROM assignment a WHERE a.worker_id = w.id) AS load,
               (SELECT count(*) FROM dead_letter d WHERE d.worker_instance = w.instance
                   AND d.parked_at > now() - make_interval(secs => $4)) AS recent_dead_letters
          FROM worker w
         WHERE w.id > $2 AND ($1::text IS NULL OR w.status = $1)
         ORDER BY w.id LIMIT $3
        """,
        status,
        after,
        limit,
        AVOIDED_SECONDS,
    )
    return [WorkerView(**dict(row)) for row in rows]
