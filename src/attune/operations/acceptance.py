"""What is asked for, what of it is handed in at the door, and what that becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.errors import AttuneError
from attune.domain.idempotency import Answered, Claim, repeat_answer
from attune.domain.json_values import Json
from attune.operations.access.write_audit import Actor
from attune.storage.births import Inserted, NewExecution


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One execution somebody asks for."""

    action_ref: str
    parameters: Mapping[str, Json]
    priority: int = 0
    trace_tag: str | None = None
    traceparent: str | None = None
    not_before: datetime | None = None
    worker_id: int | None = None
    worker_queue_ttl_seconds: float | None = None
    # Who asks for it as a part of itself; nobody can say so from outside.
    parent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody asks for in one go."""

    requests: Sequence[Request]
    identity: int | None
    requested_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One request, already checked: its executions are accepted together or not at all."""

    prepared: tuple[NewExecution, ...]
    by: Actor
    claim: Claim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a request became, with its first row; None where it repeats an earlier one."""

    ids: tuple[int, ...]
    first: Inserted | None = None


def repeat_acceptance(claim: Claim, answered: Answered | None) -> Acceptance | AttuneError:
    try:
        return read_acceptance(repeat_answer(claim, answered))
    except AttuneError as error:
        return error


def read_acceptance(answer: Json) -> Acceptance:
    """What an earlier request became, from the answer that was kept of it."""
    ids = answer.get("ids") if isinstance(answer, dict) else None
    return Acceptance(ids=tuple(each for each in ids if isinstance(each, int)) if isinstance(ids, list) else ())
