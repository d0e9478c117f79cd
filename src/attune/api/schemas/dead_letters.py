"""What is asked and answered about dead letters."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from attune.api.pages import ID_MAX, LIMIT_DEFAULT, Cursor, Limit
from attune.api.schemas.executions import ActionRef
from attune.domain.endings.dead_letters import Outcome
from attune.storage.views.dead_letters import DeadLetterGroup

_Text = Annotated[str, msgspec.Meta(max_length=100)]
_Id = Annotated[int, msgspec.Meta(ge=1, le=ID_MAX)]
_Since = Annotated[datetime, msgspec.Meta(tz=True, description="Only those that died at this time or later.")]


class DeadLetterSelection(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are to be sent again or dropped: of those that wait for a person, so many at most."""

    reason: _Text | None = None
    type: _Text | None = None
    action_ref: ActionRef | None = None
    worker_id: _Id | None = None
    execution_id: _Id | None = None
    since: _Since | None = None
    limit: Limit = LIMIT_DEFAULT


class DeadLetterQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which dead letters, the newest first; `open` are those that wait for a person."""

    open: bool | None = None
    outcome: Outcome | None = None
    reason: _Text | None = None
    type: _Text | None = None
    action_ref: ActionRef | None = None
    worker_id: _Id | None = None
    execution_id: _Id | None = None
    since: _Since | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["-id"] = "-id"


class StatsQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """By what dead letters are counted together: some of action, worker and reason, with commas between."""

    group_by: Annotated[
        str, msgspec.Meta(pattern=r"^(action|worker|reason)(,(action|worker|reason))*$", max_length=100)
    ] = "reason"
    since: _Since | None = None


class StatsAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """How many dead letters there are, by what they have in common."""

    # Nobody has dealt with these: parked for a person, or on their way to the handler.
    depth: int
    open: int
    unhandled: int
    last_minute: int
    # The largest ones.
    groups: Sequence[DeadLetterGroup]


class VerdictAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """What sending again or dropping came to; without effect the message says why."""

    id: int
    effect: bool
    outcome: Outcome | None
    message: str


class VerdictsAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """What became of each of a selection; there may be more of them than were taken at once."""

    items: Sequence[VerdictAnswer]
    more: bool
