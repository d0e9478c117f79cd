"""What sweeps look for in lines."""

from dataclasses import dataclass

from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """Somebody who has waited longer than the line's policy, or the setting, allows."""

    execution_id: int
    line_id: int
    timeout_seconds: float


async def list_overdue(tx: Tx, *, default_seconds: float, limit: int) -> list[Overdue]:
    """Who waited too long, the longest first; reads no entry younger than the shortest timeout there is."""
    rows = await tx.fetch(
        """
        SELECT e.execution_id, e.line_id, COALESCE(p.queue_timeout_seconds, $1)::float8 AS timeout_seconds
          FROM line_entry e
          JOIN line l ON l.id = e.line_id
          LEFT JOIN policy p ON p.id = l.policy_id AND p.enabled
          JOIN execution x ON x.id = e.execution_id AND x.status = 'queued'
         WHERE e.state = 'waiting'
           AND e.enqueued_at < now() - make_interval(secs => LEAST($1, (
                   SELECT min(queue_timeout_seconds) FROM policy WHERE enabled)))
           AND e.enqueued_at < now() - make_interval(secs => COALESCE(p.queue_timeout_seconds, $1))
         ORDER BY e.enqueued_at LIMIT $2
        """,
        default_seconds,
        limit,
    )
    return [Overdue(**dict(row)) for row in rows]
