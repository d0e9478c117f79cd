"""Judges lines by their log, the client's own order and the ends of executions: order, limit, and idle slots.

Nothing here asks the code under test what it believes: the log is replayed, and whoever the log forgot is found by the
list of what was accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One row of an admission log."""

    line_id: int
    n: int
    op: str
    execution_id: int | None
    priority: int | None
    limit_in_force: int | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStory:
    """What is known of one line: its log in order, and what witnesses outside of it say."""

    rows: Sequence[LogRow]
    # In the order of the answers that accepted them.
    accepted: Sequence[int]
    # Every limit somebody ever set for it.
    limits: Collection[int]
    ended: Mapping[int, datetime] = field(default_factory=dict)
    pauses: Sequence[tuple[datetime, datetime]] = ()


def find_inversions(story: LineStory) -> list[str]:
    """Admissions that passed over somebody who waited, came earlier, and had no lower priority."""
    place = {execution_id: number for number, execution_id in enumerate(story.accepted)}
    waiting: dict[int, tuple[int, int]] = {}
    found = []
    for row in story.rows:
        if row.execution_id is None:
            continue
        if row.op in {"enq", "rejoin"}:
            waiting[row.execution_id] = (-(row.priority or 0), place[row.execution_id])
        elif row.op in {"admit", "remove"}:
            mine = waiting.pop(row.execution_id)
            passed = [other for other, theirs in waiting.items() if theirs < mine] if row.op == "admit" else []
            if passed:
                found.append(f"line {row.line_id}: {row.execution_id} was admitted before {passed[:5]}")
    return found


def find_excess(story: LineStory) -> list[str]:
    """Admissions beyond the limit in force, or under a limit nobody set."""
    holding: set[int] = set()
    found = []
    for row in story.rows:
        if row.execution_id is not None and row.op == "admit":
            holding.add(row.execution_id)
            limit = row.limit_in_force or 0
            if limit not in story.limits or len(holding) > limit:
                found.append(f"line {row.line_id}, n {row.n}: {len(holding)} held a slot of {row.limit_in_force}")
        elif row.execution_id is not None and row.op == "release":
            holding.discard(row.execution_id)
    return found


def find_lost(story: LineStory) -> list[str]:
    """Accepted executions that did not join exactly once and leave exactly once."""
    joined = Counter(row.execution_id for row in story.rows if row.op == "enq")
    left = Counter(row.execution_id for row in story.rows if row.op in {"release", "remove"})
    return [
        f"{execution_id} joined {joined[execution_id]} times and left {left[execution_id]} times"
        for execution_id in story.accepted
        if (joined[execution_id], left[execution_id]) != (1, 1)
    ]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Moment:
    at: datetime
    waiting: int = 0
    holding: int = 0
    paused: int = 0
    limit: int = 0
    admits: bool = False


def find_idle_slots(story: LineStory) -> list[float]:
    """For how long each slot stood empty while somebody waited, in seconds.

    A slot is empty from the moment its holder ended, not from the moment somebody noticed.
    """
    limit = waiting = holding = paused = 0
    empty_since: list[datetime] = []
    gaps = []
    for moment in sorted(_moments(story), key=lambda each: each.at):
        limit = moment.limit or limit
        waiting, holding, paused = waiting + moment.waiting, holding + moment.holding, paused + moment.paused
        idle = 0 if paused else max(0, min(limit - holding, waiting))
        while len(empty_since) > idle:
            # Who is admitted takes the slot that was empty the longest; otherwise the latest is no longer of use.
            since = empty_since.pop(0 if moment.admits else -1)
            gaps.append((moment.at - since).total_seconds())
        empty_since += [moment.at] * (idle - len(empty_since))
    return gaps


def _moments(story: LineStory) -> list[_Moment]:
    found = [_Moment(at=begin, paused=1) for begin, _ in story.pauses]
    found += [_Moment(at=end, paused=-1) for _, end in story.pauses]
    first = next((row.limit_in_force for row in story.rows if row.limit_in_force), 0)
    found += [_Moment(at=story.rows[0].at, limit=first)] if story.rows else []
    found += [_Moment(at=row.at, limit=row.limit_in_force or 0) for row in story.rows if row.op == "limit"]
    admitted = {row.execution_id: row.at for row in story.rows if row.op == "admit"}
    for row in story.rows:
        if row.op != "enq" or row.execution_id is None:
            continue
        end = story.ended[row.execution_id]
        found.append(_Moment(at=row.at, waiting=1))
        if row.execution_id in admitted:
            # An end that was written while the admission waited for its commit may carry an earlier time.
            at = admitted[row.execution_id]
            found += [_Moment(at=at, waiting=-1, holding=1, admits=True), _Moment(at=max(at, end), holding=-1)]
        else:
            found.append(_Moment(at=max(row.at, end), waiting=-1))
    return found
