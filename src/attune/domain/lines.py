"""Lines: which one an execution belongs to, and who may join it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum

from attune.domain.definitions import LimitMethod, RateMethod
from attune.domain.json_values import Json

# One way to write each group, whatever the order of its parameters.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePolicy:
    """What governs a line, as far as joining it is concerned."""

    policy_id: int
    ref: str
    scope: str
    parameters: tuple[str, ...]
    # Of an adaptive limit: where it begins.
    max_concurrent: int | None
    adaptive: bool
    method: LimitMethod
    rate_max: int | None
    rate_window_seconds: float | None
    rate_method: RateMethod | None
    per_day: int | None
    max_queue_length: int
    # Whether a delayed retry comes back to the place it had.
    keeps_place: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LineKey:
    """The identity of a line: its scope, and the values that make up its group."""

    scope: str
    group: str

    @property
    def group_hash(self) -> bytes:
        """Of fixed length, whatever the values are."""
        return hashlib.sha256(self.group.encode()).digest()


def line_key(policy: LinePolicy, parameters: Mapping[str, Json]) -> LineKey:
    """The line of an execution: grouping parameters are dotted paths, and a missing one counts as null."""
    group = {path: _look_up(parameters, path.split(".")) for path in policy.parameters}
    return LineKey(scope=policy.scope, group=_ENCODER.encode(group))


def _look_up(document: Json | Mapping[str, Json], path: Sequence[str]) -> Json:
    for name in path:
        if not isinstance(document, Mapping) or name not in document:
            return None
        document = document[name]
    return document  # type: ignore[return-value]  # a Mapping inside parameters is a dict


@dataclass(frozen=True, slots=True, kw_only=True)
class LineState:
    """A line under its lock."""

    line_id: int
    limit: int | None
    active: int
    waiting: int
    next_seq: int
    recent: tuple[datetime, ...]
    day: date | None
    day_count: int


class Verdict(StrEnum):
    """What becomes of an execution that wants to join."""

    JOINS = "joins"
    # Recorded as cancelled, so that nothing vanishes.
    CANCELLED = "cancelled"
    # Refused with its whole request, and no row.
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The verdict on one execution, the line afterwards, and why not."""

    verdict: Verdict
    line: LineState
    reason: str = ""


def decide_joining(line: LineState, policy: LinePolicy, *, now: datetime) -> Joining:
    """Whether one more execution may join a line."""
    if line.waiting >= policy.max_queue_length:
        reason = f"Queue full (max length: {policy.max_queue_length})"
        return Joining(verdict=Verdict.FULL, line=line, reason=reason)
    today = line.day_count if line.day == now.date() else 0
    refusal = _find_refusal(line, policy, today=today, now=now)
    if refusal:
        return Joining(verdict=Verdict.CANCELLED, line=line, reason=f"policy {policy.ref}: {refusal}")
    counted = policy.rate_method is RateMethod.CANCEL
    joined = replace(
        line,
        waiting=line.waiting + 1,
        next_seq=line.next_seq + 1,
        recent=(now, *line.recent)[: policy.rate_max] if counted else line.recent,
        day=now.date(),
        day_count=today + 1,
    )
    return Joining(verdict=Verdict.JOINS, line=joined)


def _find_refusal(line: LineState, policy: LinePolicy, *, today: int, now: datetime) -> str:
    """Which of the limits that cancel rather than queue is reached; empty if none is."""
    if policy.per_day is not None and today >= policy.per_day:
        return f"quota of {policy.per_day} per day is used up"
    limit = line.limit if policy.adaptive else policy.max_concurrent
    if policy.method is LimitMethod.CANCEL and limit is not None and line.active + line.waiting >= limit:
        return f"limit of {limit} at once is reached"
    if policy.rate_method is RateMethod.CANCEL and policy.rate_max is not None:
        window = policy.rate_window_seconds or 0.0
        if sum(at > now - timedelta(seconds=window) for at in line.recent) >= policy.rate_max:
            return f"rate limit of {policy.rate_max} per {window:g} s is reached"
    return ""
