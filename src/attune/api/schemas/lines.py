"""What is asked and answered about lines."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from attune.api.pages import ID_MAX, LIMIT_DEFAULT, LIMIT_MAX, Cursor, Limit
from attune.api.schemas.executions import ActionRef
from attune.domain.line_health import Health
from attune.storage.views.lines import LineView


class LineQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which lines; of an action: its own, and the one of the policy that governs it."""

    action_ref: ActionRef | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["id"] = "id"


class AdmissionQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which part of a line's log."""

    after: Annotated[int, msgspec.Meta(ge=0, le=ID_MAX, description="Only what has a higher `n`.")] = 0
    limit: Limit = LIMIT_MAX
    cursor: Cursor | None = None
    sort: Literal["n"] = "n"


class HistoryQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which part of the history of an action's lines, and how coarse."""

    since: Annotated[datetime, msgspec.Meta(tz=True, description="The beginning; default: an hour ago.")] | None = None
    step: Annotated[
        int,
        msgspec.Meta(ge=60, le=86_400, multiple_of=60, description="Seconds that are told together, whole minutes."),
    ] = 60


class ClearAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """What clearing came to."""

    lines: int
    cancelled: int


class AgeBucket(msgspec.Struct, kw_only=True, frozen=True):
    """How many have waited less than this, and not less than the bucket before; None: longer than all."""

    under_seconds: float | None
    waiting: int


class HealthAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """How the lines do, and what led to this judgement."""

    verdict: Health
    reasons: Sequence[str]


class QueueStats(msgspec.Struct, kw_only=True, frozen=True):
    """How many wait for an action, how long, and how it will go on."""

    action_id: int
    action_ref: str
    queue_length: int
    active_count: int
    max_concurrent: int | None
    oldest_enqueued_at: datetime | None
    total_enqueued: int
    total_completed: int
    last_updated: datetime | None
    paused: bool
    lines: int
    # The lines in which most wait; `lines` counts all.
    groups: Sequence[LineView]
    wait_p50: float | None
    wait_p95: float | None
    wait_p99: float | None
    age_histogram: Sequence[AgeBucket]
    arrivals_per_second: float
    completions_per_second: float
    # When the last of those who wait now may be expected to start; None where nothing moves.
    tail_eta_seconds: float | None
    health: HealthAnswer
