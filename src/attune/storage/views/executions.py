"""Executions as people and their programs read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.json_values import Json
from attune.storage.tx import Row, Tx

# More moves than this are not shown; an execution that had more has been retried beyond reason.
HISTORY_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePlace:
    """Where in which line an execution stands or stood."""

    id: int
    seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionView:
    """Everything that is shown of an execution."""

    id: int
    action_ref: str
    status: str
    attempt: int
    tries: int
    parameters: Json
    result: Json
    error: Json
    worker: int | None
    executor: str | None
    line: LinePlace | None
    trace_tag: str | None
    created: datetime
    queued_at: datetime | None
    scheduled_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    parent: int | None
    enforcement: int | None
    # It waited in no line, because this ancestor holds a slot there.
    inherits_slot_of: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One change of an execution's status."""

    origin: str | None
    target: str
    attempt: int
    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFilter:
    """Which executions are asked for; None lets everything pass."""

    action_ref: str | None = None
    status: str | None = None
    trace_tag: str | None = None


async def list_by_id(tx: Tx, ids: Sequence[int]) -> list[ExecutionView]:
    """These executions, in the order their ids were given; unknown ids are left out."""
    rows = await tx.fetch(
        """
        SELECT id, action_ref, status, attempt, tries, parameters, result, error, worker, executor, line_id, line_seq,
               trace_tag, created, queued_at, scheduled_at, started_at, ended_at, parent,
               inherits AS inherits_slot_of, enforcement
          FROM execution WHERE id = ANY($1)
        """,
        ids,
    )
    found = {row["id"]: _view(row) for row in rows}
    return [found[execution_id] for execution_id in ids if execution_id in found]


def _view(row: Row) -> ExecutionView:
    columns = dict(row)
    line_id, line_seq = columns.pop("line_id"), columns.pop("line_seq")
    return ExecutionView(**columns, line=None if line_id is None else LinePlace(id=line_id, seq=line_seq))


async def find(tx: Tx, execution_id: int) -> ExecutionView | None:
    """One execution, if it exists."""
    found = await list_by_id(tx, [execution_id])
    return found[0] if found else None


async def find_status(tx: Tx, execution_id: int) -> str | None:
    """The status of an execution, if it exists."""
    status: str | None = await tx.fetch_value("SELECT status FROM execution WHERE id = $1", execution_id)
    return status


async def is_child(tx: Tx, execution_id: int, *, of: int) -> bool:
    """Whether an execution was asked for by this one."""
    return bool(
        await tx.fetch_value("SELECT EXISTS (SELECT 1 FROM execution WHERE id = $1 AND parent = $2)", execution_id, of)
    )


async def find_ended(tx: Tx, ids: Sequence[int]) -> list[int]:
    """Which of these have come to their end."""
    return await tx.fetch_column("SELECT id FROM execution WHERE id = ANY($1) AND ended_at IS NOT NULL", ids)


async def list_newest_ids(tx: Tx, wanted: ExecutionFilter, *, before: int, limit: int) -> list[int]:
    """Ids, the newest first."""
    return await tx.fetch_column(
        """
        SELECT id FROM execution
         WHERE id < $1 AND ($2::text IS NULL OR action_ref = $2) AND ($3::text IS NULL OR status = $3)
         ORDER BY id DESC LIMIT $4
        """,
        before,
        wanted.action_ref,
        wanted.status,
        limit,
    )


async def list_oldest_ids(tx: Tx, wanted: ExecutionFilter, *, after: int, limit: int) -> list[int]:
    """Ids, the oldest first."""
    return await tx.fetch_column(
        """
        SELECT id FROM execution
         WHERE id > $1 AND ($2::text IS NULL OR action_ref = $2) AND ($3::text IS NULL OR status = $3)
         ORDER BY id LIMIT $4
        """,
        after,
        wanted.action_ref,
        wanted.status,
        limit,
    )


async def list_newest_live_ids(tx: Tx, wanted: ExecutionFilter, *, before: int, limit: int) -> list[int]:
    """Ids of those that have not ended, the newest first: by the index that is as small as the backlog."""
    return await tx.fetch_column(
        """
        SELECT id FROM execution
         WHERE ended_at IS NULL AND id < $1 AND ($2::text IS NULL OR action_ref = $2) AND status = $3
         ORDER BY id DESC LIMIT $4
        """,
        before,
        wanted.action_ref,
        wanted.status,
        limit,
    )


async def list_oldest_live_ids(tx: Tx, wanted: ExecutionFilter, *, after: int, limit: int) -> list[int]:
    """Ids of those that have not ended, the oldest first."""
    return await tx.fetch_column(
        """
        SELECT id FROM execution
         WHERE ended_at IS NULL AND id > $1 AND ($2::text IS NULL OR action_ref = $2) AND status = $3
         ORDER BY id LIMIT $4
        """,
        after,
        wanted.action_ref,
        wanted.status,
        limit,
    )


async def list_newest_traced_ids(tx: Tx, wanted: ExecutionFilter, *, before: int, limit: int) -> list[int]:
    """Ids of one trace, the newest first: by the trace's own index."""
    return await tx.fetch_column(
        """
        SELECT id FROM execution
         WHERE trace_tag = $5 AND id < $1
           AND ($2::text IS NULL OR action_ref = $2) AND ($3::text IS NULL OR status = $3)
         ORDER BY id DESC LIMIT $4
        """,
        before,
        wanted.action_ref,
        wanted.status,
        limit,
        wanted.trace_tag,
    )


async def list_oldest_traced_ids(tx: Tx, wanted: ExecutionFilter, *, after: int, limit: int) -> list[int]:
    """Ids of one trace, the oldest first."""
    return await tx.fetch_column(
        """
        SELECT id FROM execution
         WHERE trace_tag = $5 AND id > $1
           AND ($2::text IS NULL OR action_ref = $2) AND ($3::text IS NULL OR status = $3)
         ORDER BY id LIMIT $4
        """,
        after,
        wanted.action_ref,
        wanted.status,
        limit,
        wanted.trace_tag,
    )


async def list_child_ids(tx: Tx, parent: int, *, after: int, limit: int) -> list[int]:
    """Ids of a parent's children, the oldest first."""
    return await tx.fetch_column(
        "SELECT id FROM execution WHERE parent = $1 AND id > $2 ORDER BY id LIMIT $3", parent, after, limit
    )


async def list_history(tx: Tx, execution_id: int) -> list[Move]:
    """How an execution came to be where it is, move by move."""
    rows = await tx.fetch(
        """
        SELECT from_status AS origin, to_status AS target, attempt, actor, reason, at
          FROM execution_history WHERE execution_id = $1 ORDER BY id LIMIT $2
        """,
        execution_id,
        HISTORY_MAX,
    )
    return [Move(**dict(row)) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult:
    """What an attempt reported when it was no longer the current one; kept for people, never applied."""

    attempt: int
    worker: int
    outcome: str
    result: Json
    error: Json
    at: datetime


async def list_late_results(tx: Tx, execution_id: int) -> list[LateResult]:
    """Reports that came too late, in the order they came."""
    rows = await tx.fetch(
        """
        SELECT attempt, worker_id AS worker, outcome, result, error, at
          FROM late_result WHERE execution_id = $1 ORDER BY id LIMIT $2
        """,
        execution_id,
        HISTORY_MAX,
    )
    return [LateResult(**dict(row)) for row in rows]
