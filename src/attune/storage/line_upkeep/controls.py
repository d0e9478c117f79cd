"""Rows of `line` and `line_entry` as people steer them: locking, pausing, and who waits up to which place."""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.storage.tx import Tx

# Below and above every priority and seq there can be: where a walk along a line begins.
PRIORITY_TOP = 2**31 - 1
SEQ_BOTTOM = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedLine:
    """A line that nobody else changes until this transaction ends."""

    line_id: int
    next_seq: int
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where somebody waits in a line: earlier are higher priorities, then lower seqs."""

    priority: int = PRIORITY_TOP
    seq: int = SEQ_BOTTOM


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingEntry:
    """Somebody who waits."""

    execution_id: int
    place: Place


async def lock_many(tx: Tx, line_ids: Sequence[int]) -> dict[int, LockedLine]:
    """Lock lines in ascending order. Whoever locks executions too does it after this."""
    rows = await tx.fetch(
        """
        SELECT id AS line_id, next_seq, paused FROM line WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE
        """,
        line_ids,
    )
    return {row["line_id"]: LockedLine(**dict(row)) for row in rows}


async def save_pause(tx: Tx, line_id: int, *, by: str) -> None:
    """Hold a locked line and log it."""
    await tx.execute(
        """
        WITH changed AS (
            UPDATE line SET paused = true, paused_by = $2, next_n = next_n + 1, last_updated = now() WHERE id = $1
            RETURNING id, next_n - 1 AS n, max_concurrent, active, 'paused by ' || paused_by AS reason
        )
        INSERT INTO admission_log (line_id, n, op, limit_in_force, active, reason)
        SELECT id, n, 'pause', max_concurrent, active, reason FROM changed
        """,
        line_id,
        by,
    )


async def save_resume(tx: Tx, line_id: int) -> None:
    """Let a locked line go on, and log the limit that is in force again."""
    await tx.execute(
        """
        WITH changed AS (
            UPDATE line SET paused = false, paused_by = NULL, resumed_at = now(), next_n = next_n + 1,
                            last_updated = now()
             WHERE id = $1
            RETURNING id, next_n - 1 AS n, max_concurrent, active
        )
        INSERT INTO admission_log (line_id, n, op, limit_in_force, active, reason)
        SELECT id, n, 'limit', max_concurrent, active, 'resumed' FROM changed
        """,
        line_id,
    )


async def list_waiting(tx: Tx, line_id: int, *, after: Place, seq_max: int, limit: int) -> list[WaitingEntry]:
    """Who waits behind a place, in the order of the line, among those that came up to a seq.

    Two ranges of the line's own index; one condition with OR would walk the line from its head each time.
    """
    rows = await tx.fetch(
        """
        SELECT execution_id, priority, seq FROM (
            (SELECT execution_id, priority, seq FROM line_entry
              WHERE line_id = $1 AND state = 'waiting' AND priority = $2 AND seq > $3 AND seq <= $4
              ORDER BY seq LIMIT $5)
            UNION ALL
            (SELECT execution_id, priority, seq FROM line_entry
              WHERE line_id = $1 AND state = 'waiting' AND priority < $2 AND seq <= $4
              ORDER BY priority DESC, seq LIMIT $5)) waiting
         ORDER BY priority DESC, seq LIMIT $5
        """,
        line_id,
        after.priority,
        after.seq,
        seq_max,
        limit,
    )
    return [
        WaitingEntry(execution_id=row["execution_id"], place=Place(priority=row["priority"], seq=row["seq"]))
        for row in rows
    ]


async def list_occupied(tx: Tx, *, after: int, limit: int) -> list[int]:
    """Lines in which somebody waits, in the order of their ids."""
    return await tx.fetch_column("SELECT id FROM line WHERE id > $1 AND waiting > 0 ORDER BY id LIMIT $2", after, limit)
