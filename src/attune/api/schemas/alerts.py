"""What is asked and answered about alerts."""

from datetime import datetime
from typing import Annotated, Literal, Self

import msgspec

from attune.api.pages import LIMIT_DEFAULT, Cursor, Limit
from attune.domain.alerts.catalogue import ALERTS
from attune.domain.alerts.episodes import State
from attune.domain.json_values import Json
from attune.storage.views.alerts import AlertRow

RUNBOOKS = {alert.name: alert.runbook for alert in ALERTS}


class AlertQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which alerts, the newest first; those that are not yet true for long enough only if asked for as `pending`."""

    state: State | None = None
    name: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["-id"] = "-id"


class AlertAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """One episode of an alert: what is or was wrong, about what, and since when."""

    id: int
    name: str
    # `line:ID`, `action:REF`, or empty for the whole installation.
    subject: str
    severity: str
    state: str
    message: str
    facts: Json
    # The page of the documentation that helps; null for an alert of an earlier version.
    runbook: str | None
    since: datetime
    seen_at: datetime
    fired_at: datetime | None
    resolved_at: datetime | None

    @classmethod
    def of(cls, row: AlertRow) -> Self:
        return cls(
            id=row.id,
            name=row.name,
            subject=row.subject,
            severity=row.severity,
            state=row.state,
            message=row.message,
            facts=row.facts,
            runbook=f"docs/{RUNBOOKS[row.name]}" if row.name in RUNBOOKS else None,
            since=row.since,
            seen_at=row.seen_at,
            fired_at=row.fired_at,
            resolved_at=row.resolved_at,
        )
