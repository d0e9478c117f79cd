"""Lines as people and their programs read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.json_values import Json
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """Everything that is shown of a line."""

    id: int
    # What shares the line: `action:REF`, `pack:REF` or `global`.
    scope: str
    # The values of the grouping parameters that share the line.
    group: Json
    limit: int | None
    active: int
    waiting: int
    paused: bool
    total_enqueued: int
    total_completed: int
    policy: str | None
    # Why the limit is what it is; None: it never changed.
    limit_reason: str | None
    # The bounds between which the limit moves by itself: `min` and `max`.
    adaptive: Json
    paused_by: str | None
    oldest_enqueued_at: datetime | None
    # Nobody is admitted, because no living worker could run the first.
    held: bool
    # Until when the rate limit lets nobody pass.
    wake_at: datetime | None
    last_updated: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One thing that happened to a line, in the order of `n`."""

    n: int
    op: str
    execution_id: int | None
    seq: int | None
    priority: int | None
    limit_in_force: int | None
    active: int | None
    at: datetime
    # Of a limit: why it changed. Of a pause: who.
    reason: str | None


async def list_scopes(tx: Tx, action_ref: str) -> list[str]:
    """The scopes whose lines an action's executions stand in: its own, and that of the policy that governs it."""
    return await tx.fetch_column(
        """
        SELECT 'action:' || a.id FROM action a WHERE a.ref = $1
        UNION
        (SELECT p.scope FROM action a
           JOIN policy p ON p.enabled AND p.scope = ANY (governing_scopes(a.id, a.pack, a.runner))
          WHERE a.ref = $1
          ORDER BY array_position(ARRAY['action', 'pack', 'global'], split_part(p.scope, ':', 1)) LIMIT 1)
        """,
        action_ref,
    )


async def list_ids(tx: Tx, *, after: int, limit: int) -> list[int]:
    """Ids of lines, ascending."""
    return await tx.fetch_column("SELECT id FROM line WHERE id > $1 ORDER BY id LIMIT $2", after, limit)


async def list_ids_in_scopes(tx: Tx, scopes: Sequence[str], *, after: int, limit: int) -> list[int]:
    """Ids of the lines of some scopes, ascending."""
    return await tx.fetch_column(
        "SELECT id FROM line WHERE scope = ANY($1) AND id > $2 ORDER BY id LIMIT $3", scopes, after, limit
    )


async def list_by_id(tx: Tx, ids: Sequence[int]) -> list[LineView]:
    """These lines, ascending."""
    rows = await tx.fetch(
        """
        SELECT l.id, COALESCE('action:' || a.ref, 'pack:' || k.ref, l.scope) AS scope, l.group_key::jsonb AS "group",
               l.max_concurrent AS "limit", l.limit_reason,
               CASE WHEN l.adapted_n IS NOT NULL THEN p.adaptive - 'target' END AS adaptive, l.active, l.waiting,
               l.paused, l.total_enqueued, l.total_completed, p.ref AS policy, l.paused_by,
               CASE WHEN l.waiting > 0 THEN oldest_waiting(l.id) END AS oldest_enqueued_at, l.held,
               CASE WHEN l.wake_at > now() THEN l.wake_at END AS wake_at, l.last_updated
          FROM line l
          LEFT JOIN action a ON a.id = substring(l.scope FROM '^action:([0-9]+)$')::bigint
          LEFT JOIN pack k ON k.id = substring(l.scope FROM '^pack:([0-9]+)$')::bigint
          LEFT JOIN policy p ON p.id = l.policy_id
         WHERE l.id = ANY($1) ORDER BY l.id
        """,
        ids,
    )
    return [LineView(**dict(row)) for row in rows]


async def find(tx: Tx, line_id: int) -> LineView | None:
    """The line of this id."""
    found = await list_by_id(tx, [line_id])
    return found[0] if found else None


async def list_admissions(tx: Tx, line_id: int, *, after: int, limit: int) -> list[Admission]:
    """What happened to a line after the given `n`, in order."""
    rows = await tx.fetch(
        """
        SELECT n, op, execution_id, seq, priority, limit_in_force, active, reason, at
          FROM admission_log WHERE line_id = $1 AND n > $2 ORDER BY n LIMIT $3
        """,
        line_id,
        after,
        limit,
    )
    return [Admission(**dict(row)) for row in rows]
