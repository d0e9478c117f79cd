"""Rows of `scaling_change`: each time a pool began to want another number of workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.availability.scaling import ScalingChange
from attune.domain.json_values import Json
from attune.storage.tx import Tx

SCALING_LOCK = 4_127_835_604


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldChange:
    """A change as it is shown."""

    id: int
    at: datetime
    pool: str
    runner: str
    labels: Json
    isolation: str | None
    wanted_before: int
    wanted: int
    backlog: int
    workers: int


async def try_lock(tx: Tx) -> bool:
    """Be the only one to look, for this transaction."""
    return bool(await tx.fetch_value("SELECT pg_try_advisory_xact_lock($1)", SCALING_LOCK))


async def list_last(tx: Tx) -> list[ScalingChange]:
    """The last change of every pool that wants somebody."""
    rows = await tx.fetch(
        """
        SELECT c.pool::text, c.runner, c.labels, c.isolation, c.wanted_before, c.wanted, c.backlog, c.workers
          FROM (SELECT DISTINCT ON (pool) * FROM scaling_change ORDER BY pool, id DESC) c
         WHERE c.wanted > 0
        """
    )
    return [ScalingChange(**dict(row)) for row in rows]


async def list_newest(tx: Tx, *, limit: int) -> list[ToldChange]:
    """The newest changes, the last one first."""
    rows = await tx.fetch(
        """
        SELECT id, at, pool::text, runner, labels, isolation, wanted_before, wanted, backlog, workers
          FROM scaling_change ORDER BY id DESC LIMIT $1
        """,
        limit,
    )
    return [ToldChange(**dict(row)) for row in rows]


async def insert(tx: Tx, changes: Sequence[ScalingChange]) -> None:
    """Write changes down."""
    await tx.execute(
        """
        INSERT INTO scaling_change (pool, runner, labels, isolation, wanted_before, wanted, backlog, workers)
        SELECT * FROM unnest($1::text[]::bigint[], $2::text[], $3::jsonb[], $4::text[], $5::int[], $6::int[], $7::int[],
                             $8::int[])
        """,
        [each.pool for each in changes],
        [each.runner for each in changes],
        [each.labels for each in changes],
        [each.isolation for each in changes],
        [each.wanted_before for each in changes],
        [each.wanted for each in changes],
        [each.backlog for each in changes],
        [each.workers for each in changes],
    )


async def delete_beyond(tx: Tx, *, kept: int) -> None:
    """Forget all but the newest, and the last one of each pool that wants somebody: the next is compared with it."""
    await tx.execute(
        """
        DELETE FROM scaling_change c
         WHERE c.id <= (SELECT max(id) FROM scaling_change) - $1
           AND (c.wanted = 0 OR EXISTS (SELECT 1 FROM scaling_change n WHERE n.pool = c.pool AND n.id > c.id))
        """,
        kept,
    )
