"""Rows of `execution`: locking, and the one guarded update of their status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attune.domain.definitions import OnWorkerLost
from attune.domain.execution import Change, Status
from attune.domain.json_values import Json
from attune.domain.placement import Waiting
from attune.domain.retry import Running
from attune.storage.actions import retry_of
from attune.storage.assignments import Held
from attune.storage.tx import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """A requested execution as placement needs it, locked."""

    waiting: Waiting
    pool: int
    pinned_to: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What is asked of an execution once it has moved."""

    action_ref: str
    parent: int | None


async def change_many(tx: Tx, changes: Sequence[Change]) -> dict[int, Moved]:
    """Make each move whose guard still holds; returns those who moved, by id.

    Only `change_executions` calls this. The caller holds the rows' locks, taken in ascending order.
    """
    rows = await tx.fetch(
        """
        UPDATE execution e
           SET status = c.target,
               attempt = c.next_attempt,
               tries = e.tries + (c.target = 'running')::int,
               -- A start ends the search for a worker; the next try begins its own.
               placements = CASE WHEN c.target = 'running' THEN 0 ELSE e.placements + c.placements_added END,
               worker = COALESCE(c.worker_id, e.worker),
               executor = CASE WHEN c.next_attempt > c.guard_attempt THEN c.actor ELSE e.executor END,
               cancel_requested = e.cancel_requested OR c.target = 'canceling',
               not_before = now() + make_interval(secs => c.delay),
               result = COALESCE(c.result, e.result),
               error = c.failure,
               changed_by = c.actor,
               change_reason = c.reason,
               updated = now(),
               scheduled_at = CASE WHEN c.next_attempt > c.guard_attempt THEN now() ELSE e.scheduled_at END,
               started_at = CASE WHEN c.target = 'running' THEN now() ELSE e.started_at END,
               ended_at = CASE WHEN c.target IN ('succeeded', 'failed', 'timeout', 'cancelled') THEN now() END
          FROM unnest($1::bigint[], $2::text[], $3::int[], $4::text[], $5::int[], $6::int[], $7::bigint[],
                      $8::float8[], $9::jsonb[], $10::jsonb[], $11::text[], $12::text[])
               AS c (id, guard_status, guard_attempt, target, next_attempt, placements_added, worker_id, delay,
                     result, failure, actor, reason)
         WHERE e.id = c.id AND e.id = ANY($1) AND e.status = c.guard_status AND e.attempt = c.guard_attempt
        RETURNING e.id, e.action_ref, e.parent
        """,
        [change.execution_id for change in changes],
        [change.current for change in changes],
        [change.attempt for change in changes],
        [change.target for change in changes],
        [change.next_attempt for change in changes],
        [change.placements_added for change in changes],
        [change.worker_id for change in changes],
        [change.delay_seconds for change in changes],
        [change.result for change in changes],
        [change.failure for change in changes],
        [change.actor for change in changes],
        [change.reason for change in changes],
    )
    return {row["id"]: Moved(action_ref=row["action_ref"], parent=row["parent"]) for row in rows}


async def lock_requested(tx: Tx, ids: Sequence[int]) -> list[Requested]:
    """Lock those that are requested and due, in ascending order."""
    rows = await tx.fetch(
        """
        SELECT e.id, e.action, e.attempt, e.priority, a.pool, CASE WHEN e.pinned THEN e.worker END AS pinned_to
          FROM execution e JOIN action a ON a.id = e.action
         WHERE e.id = ANY($1) AND e.status = 'requested' AND (e.not_before IS NULL OR e.not_before <= now())
         ORDER BY e.id FOR NO KEY UPDATE OF e
        """,
        ids,
    )
    return [
        Requested(
            waiting=Waiting(
                execution_id=row["id"], attempt=row["attempt"], action_id=row["action"], priority=row["priority"]
            ),
            pool=row["pool"],
            pinned_to=row["pinned_to"],
        )
        for row in rows
    ]


async def lock_scheduling(tx: Tx, ids: Sequence[int]) -> dict[int, tuple[int, int | None]]:
    """Lock those that still wait for a worker: their attempt and last worker.

    Whoever places several pools holds later rows already, so this waits for nobody: a row that somebody else has
    locked is being moved, and passed over.
    """
    rows = await tx.fetch(
        """
        SELECT id, attempt, worker FROM execution
         WHERE id = ANY($1) AND status = 'scheduling' ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
        """,
        ids,
    )
    return {row["id"]: (row["attempt"], row["worker"]) for row in rows}


async def lock_scheduled(tx: Tx, ids: Sequence[int]) -> dict[int, int]:
    """Lock these in ascending order; of those that are placed and not started, the attempt. A start ends nobody above.

    All of them, whatever their status: an earlier transaction that is placing one holds its lock and is waited for.
    """
    rows = await tx.fetch(
        "SELECT id, attempt, status FROM execution WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE", ids
    )
    return {row["id"]: row["attempt"] for row in rows if row["status"] == Status.SCHEDULED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """An execution under lock, with what its action says about trying again."""

    running: Running
    waiting: Waiting
    placements: int
    pool: int
    pinned: bool
    worker_id: int | None
    line_id: int | None
    # Workers were lost while they ran its action, which has not succeeded since.
    suspect: bool


async def lock_many(tx: Tx, ids: Sequence[int]) -> dict[int, Locked]:
    """Lock live rows in ascending order, whatever their status.

    With them everybody above who was asked to stop: a parent's id is smaller than its child's, and the end of the last
    child is the parent's.
    """
    rows = await tx.fetch(
        """
        SELECT e.id, e.action, e.status, e.attempt, e.tries, e.max_attempts, e.priority, e.placements, e.pinned,
               e.worker, e.line_id, a.pool, a.retry, a.idempotent, a.on_worker_lost, a.lost_workers <> '{}' AS suspect
          FROM execution e JOIN action a ON a.id = e.action
         WHERE e.id = ANY($1::bigint[] || ARRAY(SELECT * FROM stopping_above($1))) AND e.ended_at IS NULL
         ORDER BY e.id FOR NO KEY UPDATE OF e
        """,
        ids,
    )
    asked = set(ids)
    return {row["id"]: _locked(row) for row in rows if row["id"] in asked}


async def lock_ending(tx: Tx, ids: Sequence[int]) -> tuple[dict[int, Locked], dict[int, Held]]:
    """Lock live rows that may end or be tried again, after the lines whose slots they may give back.

    Also the leases under which they run, locked: the fence of everything a worker writes.
    """
    rows = await tx.fetch("SELECT * FROM lock_ending($1)", ids)
    held = {
        row["id"]: Held(execution_id=row["id"], attempt=row["held_attempt"], lease=row["lease"])
        for row in rows
        if row["lease"] is not None
    }
    return {row["id"]: _locked(row) for row in rows}, held


def _locked(row: Row) -> Locked:
    return Locked(
        running=Running(
            execution_id=row["id"],
            status=Status(row["status"]),
            attempt=row["attempt"],
            tries=row["tries"],
            max_attempts=row["max_attempts"],
            retry=retry_of(row["retry"]),
            idempotent=row["idempotent"],
            on_worker_lost=OnWorkerLost(row["on_worker_lost"]) if row["on_worker_lost"] else None,
            pinned=row["pinned"],
        ),
        waiting=Waiting(
            execution_id=row["id"], attempt=row["attempt"], action_id=row["action"], priority=row["priority"]
        ),
        placements=row["placements"],
        pool=row["pool"],
        pinned=row["pinned"],
        worker_id=row["worker"],
        line_id=row["line_id"],
        suspect=row["suspect"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Startable:
    """What a worker needs to run an attempt it has claimed."""

    execution_id: int
    attempt: int
    tries: int
    action_ref: str
    pack_ref: str
    pack_digest: str
    runner: str
    entry_point: str | None
    command: str | None
    command_from: str | None
    image: str | None
    container: Json
    http: Json
    parameters: Json
    parameter_delivery: str
    parameter_format: str
    output_format: str
    output_schema: Json
    # The least that its action asks for.
    isolation: str | None
    timeout_seconds: float
    traceparent: str | None
    # Since it was accepted, or due.
    waited_seconds: float
    # The secrets among its parameters, which hold a marker in their place.
    sealed: bytes | None = None


async def list_startable(tx: Tx, ids: Sequence[int]) -> list[Startable]:
    """What is needed to run these, from the execution, its action and its pack."""
    rows = await tx.fetch(
        """
        SELECT e.id AS execution_id, e.attempt, e.tries, e.action_ref, p.ref AS pack_ref, p.digest AS pack_digest,
               e.runner, a.entry_point, a.command, a.command_from, a.image, a.container, a.http, e.parameters,
               a.parameter_delivery, a.parameter_format, a.output_format, a.output AS output_schema, a.isolation,
               e.timeout_seconds, e.traceparent,
               extract(epoch FROM now() - GREATEST(e.created, e.not_before))::float8 AS waited_seconds, s.sealed
          FROM execution e JOIN action a ON a.id = e.action JOIN pack p ON p.id = a.pack
          LEFT JOIN sealed_parameters s ON s.execution_id = e.id
         WHERE e.id = ANY($1)
        """,
        ids,
    )
    return [Startable(**dict(row)) for row in rows]


async def list_due(tx: Tx, *, overdue_seconds: float, limit: int) -> list[int]:
    """Requested executions whose start is overdue: their message is lost, or was delayed too long."""
    return await tx.fetch_column(
        """
        SELECT id FROM execution
         WHERE ended_at IS NULL AND status = 'requested'
           AND COALESCE(not_before, created) < now() - make_interval(secs => $1)
         ORDER BY id LIMIT $2
        """,
        overdue_seconds,
        limit,
    )


async def exists(tx: Tx, execution_id: int) -> bool:
    """Whether there is such an execution, live or ended."""
    return bool(await tx.fetch_value("SELECT EXISTS (SELECT 1 FROM execution WHERE id = $1)", execution_id))


async def list_patient(tx: Tx, ids: Sequence[int]) -> dict[int, bool]:
    """Which of these may wait on their worker for a slot: native ones, and pinned ones (True), which have to."""
    rows = await tx.fetch("SELECT id, pinned FROM execution WHERE id = ANY($1) AND (runner = 'native' OR pinned)", ids)
    return {row["id"]: row["pinned"] for row in rows}


async def list_moved_by(tx: Tx, attempts: Sequence[tuple[int, int]], actor: str) -> set[tuple[int, int]]:
    """Which of these attempts were ended by this actor: the report of one whose commit had no answer did arrive."""
    rows = await tx.fetch(
        """
        SELECT h.execution_id, h.attempt
          FROM execution_history h
          JOIN unnest($1::bigint[], $2::int[]) AS a (id, attempt) ON h.execution_id = a.id AND h.attempt = a.attempt
         WHERE h.execution_id = ANY($1) AND h.actor = $3 AND h.from_status IN ('running', 'canceling')
        """,
        [item[0] for item in attempts],
        [item[1] for item in attempts],
        actor,
    )
    return {(row["execution_id"], row["attempt"]) for row in rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A requested execution that is due, as joining a line needs it; not locked."""

    execution_id: int
    action_id: int
    parameters: Mapping[str, Json]
    line_id: int | None
    line_seq: int | None
    pinned: bool
    parent: int | None

    @property
    def waits_outside(self) -> bool:
        """Pinned work is nobody's to hold back."""
        return self.pinned


async def list_requested(tx: Tx, ids: Sequence[int]) -> list[Due]:
    """Those that are requested and due, in ascending order, without locking them: lines are locked first."""
    rows = await tx.fetch(
        """
        SELECT id AS execution_id, action AS action_id, parameters, line_id, line_seq, pinned, parent
          FROM execution
         WHERE id = ANY($1) AND status = 'requested' AND (not_before IS NULL OR not_before <= now())
         ORDER BY id
        """,
        ids,
    )
    return [Due(**dict(row)) for row in rows]


async def save_places(tx: Tx, places: Sequence[tuple[int, int, int]]) -> None:
    """Note the line and the seq of executions that joined after they were accepted; the rows are locked."""
    await tx.execute(
        """
        UPDATE execution e SET line_id = p.line_id, line_seq = p.seq, queued_at = now()
          FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS p (id, line_id, seq)
         WHERE e.id = p.id AND e.id = ANY($1)
        """,
        [place[0] for place in places],
        [place[1] for place in places],
        [place[2] for place in places],
    )


async def save_inherited(tx: Tx, inherited: Sequence[tuple[int, int]]) -> None:
    """Note whose slot executions use that were due and joined no line; the rows are locked."""
    await tx.execute(
        """
        UPDATE execution e SET inherits = i.holder
          FROM unnest($1::bigint[], $2::bigint[]) AS i (id, holder) WHERE e.id = i.id AND e.id = ANY($1)
        """,
        [execution_id for execution_id, _ in inherited],
        [holder for _, holder in inherited],
    )
