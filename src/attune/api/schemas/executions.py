"""What is sent and answered about executions."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from attune.api.pages import ID_MAX, LIMIT_DEFAULT, LIMIT_MAX, Cursor, Limit
from attune.domain.definition_shapes import PRIORITY_MAX, SECONDS_MAX
from attune.domain.execution import Status
from attune.domain.json_values import Json
from attune.domain.refs import REF_LENGTH_MAX

BATCH_MAX = 1000
TRACE_TAG_LENGTH_MAX = 200

TraceTag = Annotated[str, msgspec.Meta(min_length=1, max_length=TRACE_TAG_LENGTH_MAX)]
ActionRef = Annotated[str, msgspec.Meta(max_length=REF_LENGTH_MAX, description="Which action, as `pack.name`.")]


class ExecutionRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A run somebody asks for."""

    action_ref: ActionRef
    parameters: dict[str, Json] = {}
    priority: Annotated[int, msgspec.Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = 0
    trace_tag: TraceTag | None = None
    not_before: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    worker_id: Annotated[int, msgspec.Meta(ge=1, le=ID_MAX)] | None = None
    worker_queue_ttl_seconds: Annotated[float, msgspec.Meta(gt=0, le=SECONDS_MAX)] | None = None


class BatchRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Runs that are accepted together, in this order, or not at all."""

    executions: Annotated[list[ExecutionRequest], msgspec.Meta(min_length=1, max_length=BATCH_MAX)]


class AcceptedExecution(msgspec.Struct, kw_only=True, frozen=True):
    """One run of a batch."""

    id: int


class BatchAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """The runs of a batch, in the order they were asked for."""

    executions: list[AcceptedExecution]


class WaitQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How long the answer may wait for the end of the run."""

    wait: Annotated[float, msgspec.Meta(ge=0, description="Seconds; the installation sets the longest.")] = 0.0


class CancelQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """How an execution is stopped."""

    force: Annotated[
        bool, msgspec.Meta(description="Take the lease away and end it at once, whatever its worker does.")
    ] = False


class ExecutionQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which executions, the newest first unless it is asked for the other way round."""

    action_ref: ActionRef | None = None
    status: Status | None = None
    trace_tag: TraceTag | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["-id", "id"] = "-id"


class LogQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which output."""

    stream: Literal["stdout", "stderr"] | None = None
    attempt: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    limit: Limit = LIMIT_MAX
    cursor: Cursor | None = None


class LogStreamQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which output to follow."""

    stream: Literal["stdout", "stderr"] | None = None


class ArtifactQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which artifacts, in the order of their ids."""

    execution_id: Annotated[int, msgspec.Meta(ge=1, le=ID_MAX)] | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["id"] = "id"


class LogLine(msgspec.Struct, kw_only=True, frozen=True):
    """A piece of what an action wrote; `id` counts within its attempt."""

    id: int
    attempt: int
    stream: str
    text: str
    at: datetime


class MoveAnswer(msgspec.Struct, kw_only=True, frozen=True, rename={"origin": "from", "target": "to"}):
    """One change of an execution's status."""

    origin: str | None
    target: str
    attempt: int
    actor: str
    reason: str
    at: datetime
