"""Rows of `unplaced`: admitted executions that wait for room on a worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from attune.domain.placement import Waiting
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUnplaced:
    """An execution that found no room."""

    execution_id: int
    pool: int
    priority: int
    action_id: int

    @classmethod
    def of(cls, waiting: Waiting, *, pool: int) -> Self:
        """One that waits, in its pool."""
        return cls(execution_id=waiting.execution_id, pool=pool, priority=waiting.priority, action_id=waiting.action_id)


async def insert_many(tx: Tx, new: Sequence[NewUnplaced]) -> None:
    """Insert, sorted by key; one that is there already stays as it is."""
    ordered = sorted(new, key=lambda item: item.execution_id)
    await tx.execute(
        """
        INSERT INTO unplaced (execution_id, pool, priority, action_id)
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bigint[])
        ON CONFLICT (execution_id) DO NOTHING
        """,
        [item.execution_id for item in ordered],
        [item.pool for item in ordered],
        [item.priority for item in ordered],
        [item.action_id for item in ordered],
    )


async def delete_many(tx: Tx, execution_ids: Sequence[int]) -> None:
    """Forget these; the caller has locked the executions."""
    await tx.execute("DELETE FROM unplaced WHERE execution_id = ANY($1)", execution_ids)


async def list_first(tx: Tx, pool: int, *, quarantined: Sequence[int], limit: int) -> list[Waiting]:
    """The first of a pool, by priority and age; executions of quarantined actions are passed over."""
    rows = await tx.fetch(
        """
        SELECT execution_id, priority, action_id FROM unplaced
         WHERE pool = $1 AND action_id <> ALL($3) ORDER BY priority DESC, execution_id LIMIT $2
        """,
        pool,
        limit,
        quarantined,
    )
    return [
        Waiting(execution_id=row["execution_id"], attempt=0, action_id=row["action_id"], priority=row["priority"])
        for row in rows
    ]


async def list_pools(tx: Tx) -> list[int]:
    """The pools in which somebody waits, found by one index probe a pool however many wait."""
    return await tx.fetch_column(
        """
        WITH RECURSIVE found AS (
            (SELECT pool FROM unplaced ORDER BY pool LIMIT 1)
            UNION ALL
            SELECT (SELECT u.pool FROM unplaced u WHERE u.pool > f.pool ORDER BY u.pool LIMIT 1)
              FROM found f WHERE f.pool IS NOT NULL
        )
        SELECT pool FROM found WHERE pool IS NOT NULL
        """,
    )


async def exists_older_than(tx: Tx, *, seconds: float) -> bool:
    """Whether somebody has waited for room longer than this."""
    return bool(
        await tx.fetch_value(
            "SELECT EXISTS (SELECT 1 FROM unplaced WHERE since < now() - make_interval(secs => $1))", seconds
        )
    )
