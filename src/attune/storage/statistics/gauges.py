"""How things stand right now, in numbers of a bounded cost: what is shown to a monitoring system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attune.domain.messages import DEAD_TOPIC
from attune.storage.tx import Tx

# More scopes than this are not told one by one; those in which most wait come first.
SCOPES_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeGauges:
    """The lines of one scope, taken together."""

    # As people know it: `action:REF`, `pack:REF` or `global`.
    scope: str
    waiting: int
    active: int
    max_concurrent: int | None
    oldest_seconds: float
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None


async def count_workers(tx: Tx) -> Mapping[str, int]:
    """Workers by status."""
    rows = await tx.fetch("SELECT status, count(*) AS workers FROM worker GROUP BY status")
    return {row["status"]: row["workers"] for row in rows}


async def count_dead_letters(tx: Tx, *, limit: int) -> int:
    """How many wait for a person or for their handler, counted up to a limit."""
    counted: int = await tx.fetch_value(
        """
        SELECT count(*) FROM (
            SELECT 1 FROM dead_letter WHERE outcome IS NULL UNION ALL SELECT 1 FROM outbox WHERE topic = $2
             LIMIT $1) dead
        """,
        limit,
        DEAD_TOPIC,
    )
    return counted


async def list_scopes(tx: Tx) -> Sequence[ScopeGauges]:
    """The scopes that have lines; waits are those of the last full minute."""
    rows = await tx.fetch(
        """
        SELECT COALESCE('action:' || a.ref, 'pack:' || k.ref, s.scope) AS scope, s.waiting, s.active, s.max_concurrent,
               COALESCE(GREATEST(0, extract(epoch FROM now() - s.oldest_enqueued_at)), 0)::float8 AS oldest_seconds,
               h.wait_p50, h.wait_p95, h.wait_p99
          FROM line_scope s
          LEFT JOIN action a ON a.id = substring(s.scope FROM '^action:([0-9]+)$')::bigint
          LEFT JOIN pack k ON k.id = substring(s.scope FROM '^pack:([0-9]+)$')::bigint
          LEFT JOIN queue_stats_history h
            ON h.scope = s.scope AND h.minute = date_trunc('minute', now()) - interval '1 minute'
         WHERE s.lines > 0
         ORDER BY s.waiting DESC, s.active DESC, s.scope LIMIT $1
        """,
        SCOPES_MAX,
    )
    return [ScopeGauges(**dict(row)) for row in rows]
