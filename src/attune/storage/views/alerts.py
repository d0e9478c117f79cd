"""Alerts as people and their programs read them."""

from dataclasses import dataclass
from datetime import datetime

from attune.domain.json_values import Json
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """One episode as it is stored."""

    id: int
    name: str
    subject: str
    severity: str
    state: str
    message: str
    facts: Json
    since: datetime
    seen_at: datetime
    fired_at: datetime | None
    resolved_at: datetime | None


async def find(tx: Tx, alert_id: int) -> AlertRow | None:
    """The episode of this id."""
    row = await tx.fetch_row(
        """
        SELECT id, name, subject, severity, state, message, facts, since, seen_at, fired_at, resolved_at
          FROM alert WHERE id = $1
        """,
        alert_id,
    )
    return AlertRow(**dict(row)) if row else None


async def list_page(tx: Tx, *, state: str | None, name: str | None, before: int, limit: int) -> list[AlertRow]:
    """Episodes, the newest first; those that did not fire yet only if they are asked for."""
    rows = await tx.fetch(
        """
        SELECT id, name, subject, severity, state, message, facts, since, seen_at, fired_at, resolved_at
          FROM alert
         WHERE id < $3 AND state = ANY(CASE WHEN $1::text IS NULL THEN ARRAY['firing', 'resolved'] ELSE ARRAY[$1] END)
           AND ($2::text IS NULL OR name = $2)
         ORDER BY id DESC LIMIT $4
        """,
        state,
        name,
        before,
        limit,
    )
    return [AlertRow(**dict(row)) for row in rows]
