"""Puts lines, and executions that wait or hold slots in them, into a database as a test wants them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from attune.storage.database import Database
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrangedLine:
    """A line and who stands in it, in order."""

    line_id: int
    active: Sequence[int]
    waiting: Sequence[int]


async def make_policy(database: Database, ref: str, action_ref: str, *, queue_timeout_seconds: float | None) -> int:
    """An enabled policy of an action with the limit 2."""
    async with database.transaction() as tx:
        return int(
            await tx.fetch_value(
                """
                INSERT INTO policy (ref, scope, max_concurrent, queue_timeout_seconds, adhoc)
                SELECT $1, 'action:' || id, 2, $3, true FROM action WHERE ref = $2 RETURNING id
                """,
                ref,
                action_ref,
                queue_timeout_seconds,
            )
        )


async def make_line(
    database: Database,
    action_ref: str = "demo.work",
    *,
    group: str = "{}",
    limit: int = 2,
    active: int = 0,
    waiting: int = 0,
    policy_id: int | None = None,
) -> ArrangedLine:
    """A line of an action; those who hold slots came before those who wait."""
    async with database.transaction() as tx:
        line_id = await tx.fetch_value(
            """
            INSERT INTO line (scope, group_key, group_hash, policy_id, max_concurrent)
            SELECT 'action:' || id, $2, $3, $4, $5 FROM action WHERE ref = $1 RETURNING id
            """,
            action_ref,
            group,
            hashlib.sha256(group.encode()).digest(),
            policy_id,
            limit,
        )
    holding = await join(database, line_id, action_ref, count=active, state="active")
    standing = await join(database, line_id, action_ref, count=waiting)
    return ArrangedLine(line_id=line_id, active=holding, waiting=standing)


async def join(
    database: Database,
    line_id: int,
    action_ref: str = "demo.work",
    *,
    count: int,
    state: str = "waiting",
    priority: int = 0,
    waited_seconds: float = 0.0,
) -> list[int]:
    """Queued executions with an entry each, and what the log says of them; returns their ids in order."""
    async with database.transaction() as tx:
        first = await tx.fetch_row(
            """
            UPDATE line SET next_seq = next_seq + $2, next_n = next_n + $2, total_enqueued = total_enqueued + $2,
                   waiting = waiting + CASE $3 WHEN 'waiting' THEN $2 ELSE 0 END,
                   active = active + CASE $3 WHEN 'active' THEN $2 ELSE 0 END
             WHERE id = $1 RETURNING next_seq - $2 AS seq, next_n - $2 AS n
            """,
            line_id,
            count,
            state,
        )
        assert first is not None
        ids = await tx.fetch_column(
            """
            INSERT INTO execution (action, action_ref, runner, status, priority, line_id, line_seq, queued_at)
            SELECT a.id, a.ref, a.runner, 'queued', $2, $3, $4 + n, now() - make_interval(secs => $6)
              FROM action a, generate_series(0, $5 - 1) AS n WHERE a.ref = $1 ORDER BY n RETURNING id
            """,
            action_ref,
            priority,
            line_id,
            first["seq"],
            count,
            waited_seconds,
        )
        await _enter(tx, ids, state=state, first_n=first["n"])
    return ids


async def _enter(tx: Tx, ids: Sequence[int], *, state: str, first_n: int) -> None:
    await tx.execute(
        """
        WITH joined AS (
            INSERT INTO line_entry (execution_id, line_id, action_id, seq, priority, state, enqueued_at, timeout_from)
            SELECT id, line_id, action, line_seq, priority, $2, queued_at, queued_at FROM execution WHERE id = ANY($1)
            RETURNING execution_id, line_id, seq, priority)
        INSERT INTO admission_log (line_id, n, op, execution_id, seq, priority)
        SELECT line_id, $3 + row_number() OVER (ORDER BY seq) - 1, 'enq', execution_id, seq, priority FROM joined
        """,
        ids,
        state,
        first_n,
    )
