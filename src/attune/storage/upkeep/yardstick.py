"""Small questions that a measurement asks: how many commits there were, what one costs, what happened twice."""

from dataclasses import dataclass
from datetime import datetime

from attune.storage.tx import Tx


async def commit_durably(tx: Tx) -> None:
    """The smallest write there is; outside a transaction it commits at once and waits for the disk."""
    await tx.execute("SELECT pg_logical_emit_message(true, 'attune', 'yardstick')")


async def count_commits(tx: Tx) -> int:
    """Transactions that wrote something since the database was made; exact at once, unlike its statistics."""
    return int(await tx.fetch_value("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))


async def list_doubled(tx: Tx, trace_tag: str) -> list[int]:
    """Executions of a trace with an attempt that started twice, or with two successes."""
    return await tx.fetch_column(
        """
        SELECT DISTINCT h.execution_id FROM execution e JOIN execution_history h ON h.execution_id = e.id
         WHERE e.trace_tag = $1 AND h.to_status IN ('running', 'succeeded')
         GROUP BY h.execution_id, h.to_status, CASE h.to_status WHEN 'running' THEN h.attempt END
        HAVING count(*) > 1
        """,
        trace_tag,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftAttempt:
    """An attempt that was not the last of its execution: when it was placed, when and why it was given up."""

    execution_id: int
    placed_at: datetime
    left_at: datetime
    reason: str


async def list_left_attempts(tx: Tx, trace_tag: str) -> list[LeftAttempt]:
    """Every attempt of a trace that another one followed."""
    rows = await tx.fetch(
        """
        SELECT gone.execution_id, gone.at AS left_at, gone.reason,
               coalesce((SELECT max(h.at) FROM execution_history h
                          WHERE h.execution_id = gone.execution_id AND h.id < gone.id
                            AND h.to_status IN ('scheduled', 'running') AND h.from_status <> 'running'),
                        e.created) AS placed_at
          FROM execution e JOIN execution_history gone ON gone.execution_id = e.id
         WHERE e.trace_tag = $1 AND gone.from_status IN ('scheduled', 'running')
           AND gone.to_status IN ('requested', 'scheduling')
         ORDER BY gone.id
        """,
        trace_tag,
    )
    return [LeftAttempt(**row) for row in rows]


async def count_executors(tx: Tx) -> int:
    """Executors that have registered and not left."""
    return int(await tx.fetch_value("SELECT count(*) FROM executor_replica"))
