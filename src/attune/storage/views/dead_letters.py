"""Dead letters as people and their programs read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.messages import DEAD_TOPIC, DeadLetter
from attune.storage.dead_letters import dead_letter_of
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters are asked for; None lets everything pass."""

    open: bool | None = None
    reason: str | None = None
    outcome: str | None = None
    type: str | None = None
    action_ref: str | None = None
    worker_id: int | None = None
    execution_id: int | None = None
    since: datetime | None = None


async def find(tx: Tx, dead_letter_id: int) -> DeadLetter | None:
    """One dead letter."""
    found = await list_by_id(tx, [dead_letter_id])
    return found[0] if found else None


async def list_by_id(tx: Tx, dead_letter_ids: Sequence[int]) -> list[DeadLetter]:
    """These, the newest first; unknown ids are left out."""
    rows = await tx.fetch(
        """
        SELECT id, topic, type, items, body, reason, error, deliveries, deaths, created, parked_at, action_ref,
               worker_id, outcome, outcome_by, outcome_at
          FROM dead_letter WHERE id = ANY($1) ORDER BY id DESC
        """,
        dead_letter_ids,
    )
    return [dead_letter_of(row) for row in rows]


async def list_ids(tx: Tx, wanted: DeadLetterFilter, *, before: int, limit: int) -> list[int]:
    """Ids, the newest first."""
    return await tx.fetch_column(
        """
        SELECT d.id FROM dead_letter d
         WHERE d.id < $1
           AND ($2::boolean IS NULL OR (d.outcome IS NULL) = $2)
           AND ($3::text IS NULL OR d.reason = $3)
           AND ($4::text IS NULL OR d.outcome = $4)
           AND ($5::text IS NULL OR d.type = $5)
           AND ($6::text IS NULL OR d.action_ref = $6)
           AND ($7::bigint IS NULL OR d.worker_id = $7)
           AND ($8::bigint IS NULL OR (d.type LIKE 'execution.%' AND EXISTS (
                SELECT 1 FROM jsonb_array_elements(d.items) i WHERE i -> 0 = to_jsonb($8::bigint))))
           AND ($9::timestamptz IS NULL OR d.parked_at >= $9)
         ORDER BY d.id DESC LIMIT $10
        """,
        before,
        wanted.open,
        wanted.reason,
        wanted.outcome,
        wanted.type,
        wanted.action_ref,
        wanted.worker_id,
        wanted.execution_id,
        wanted.since,
        limit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """How many dead letters have something in common; what they were not grouped by is null."""

    action: str | None
    worker: int | None
    reason: str | None
    count: int
    open: int
    failed_executions: int
    first_at: datetime
    last_at: datetime


async def count_groups(tx: Tx, group_by: Sequence[str], *, since: datetime | None, limit: int) -> list[DeadLetterGroup]:
    """Dead letters counted by these of action, worker and reason, the largest groups first."""
    rows = await tx.fetch(
        """
        SELECT CASE WHEN 'action' = ANY($1::text[]) THEN action_ref END AS action,
               CASE WHEN 'worker' = ANY($1::text[]) THEN worker_id END AS worker,
               CASE WHEN 'reason' = ANY($1::text[]) THEN reason END AS reason,
               count(*) AS count, count(*) FILTER (WHERE outcome IS NULL) AS open,
               count(*) FILTER (WHERE outcome = 'failed_execution') AS failed_executions,
               min(parked_at) AS first_at, max(parked_at) AS last_at
          FROM dead_letter WHERE $2::timestamptz IS NULL OR parked_at >= $2
         GROUP BY 1, 2, 3 ORDER BY count DESC, 1, 2, 3 LIMIT $3
        """,
        group_by,
        since,
        limit,
    )
    return [DeadLetterGroup(**dict(row)) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterDepth:
    """How many wait: for a person, and for the dead-letter handler; and how many came in the last minute."""

    open: int
    unhandled: int
    last_minute: int

    @property
    def depth(self) -> int:
        """Everything that nobody has dealt with."""
        return self.open + self.unhandled


async def measure(tx: Tx) -> DeadLetterDepth:
    """Count what waits and what came lately, by their indexes. What a broker holds is not seen here."""
    row = await tx.fetch_row(
        """
        SELECT (SELECT count(*) FROM dead_letter WHERE outcome IS NULL) AS open,
               (SELECT count(*) FROM outbox WHERE topic = $1) AS unhandled,
               (SELECT count(*) FROM dead_letter WHERE parked_at > now() - interval '1 minute') AS last_minute
        """,
        DEAD_TOPIC,
    )
    return DeadLetterDepth(**dict(row)) if row else DeadLetterDepth(open=0, unhandled=0, last_minute=0)
