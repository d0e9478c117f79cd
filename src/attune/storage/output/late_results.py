"""Rows of `late_result`: what fenced attempts reported, kept for people."""

from collections.abc import Sequence

from attune.domain.retry import Ending
from attune.storage.tx import Tx


async def insert_many(tx: Tx, late: Sequence[tuple[int, int, int, Ending]]) -> None:
    """Keep execution, attempt, worker and ending of each."""
    await tx.execute(
        """
        INSERT INTO late_result (execution_id, attempt, worker_id, outcome, result, error)
        SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::text[], $5::jsonb[], $6::jsonb[])
        """,
        [item[0] for item in late],
        [item[1] for item in late],
        [item[2] for item in late],
        [item[3].outcome for item in late],
        [item[3].result for item in late],
        [item[3].failure for item in late],
    )
