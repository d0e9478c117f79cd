"""What alerts are judged by: how things stand, and how they stood a while ago."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionCounts:
    """How many executions of an action ended by themselves since the beginning, and how many of those badly."""

    ended: float
    failed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """How many waited in a line, and how many had completed in it since the beginning."""

    waiting: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one look remembers for those that come later."""

    # Executions that ended because a time was up, since the beginning.
    timeouts: float = 0.0
    actions: Mapping[str, ActionCounts] = field(default_factory=dict)
    # The lines in which somebody waited, by their id.
    lines: Mapping[str, LineCounts] = field(default_factory=dict)
    # In every line that is not named, at most so many waited.
    others_at_most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A look that lies so many seconds back."""

    seconds: float
    sample: Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReading:
    """One line that somebody waits in."""

    line_id: int
    # As people know it: `action:REF`, `pack:REF` or `global`.
    scope: str
    group: str
    waiting: int
    active: int
    length_max: int
    total_completed: int
    # It waits on purpose: a person paused it, or its rate limit lets nobody through yet.
    on_purpose: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """An action that is held because it took its workers down."""

    ref: str
    workers_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformReading:
    """What there is only one of."""

    # Workers that may be given work, and those who could but for a person's word.
    active_workers: int
    cordoned_workers: int
    # Parked for a person; on their way to the handler; and how many came in the last minute.
    dead_letters_open: int
    dead_letters_unhandled: int
    dead_letters_last_minute: int
    # Placed on a worker so long ago that it should have started or moved on.
    stale_executions: int
    # Of the oldest message that is due, a worker's own aside.
    outbox_oldest_seconds: float
    outbox_oldest_topic: str | None
    # Tables that have rows in the partition for what found none of its day.
    default_partitions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Everything one look has found; None where there was no look at the right time before."""

    platform: PlatformReading
    lines: Sequence[LineReading] = ()
    quarantined: Sequence[Quarantined] = ()
    present: Sample = field(default_factory=Sample)
    minute_ago: Past | None = None
    five_minutes_ago: Past | None = None
    ten_minutes_ago: Past | None = None


def remember(
    lines: Sequence[LineReading], *, timeouts: float, actions: Mapping[str, ActionCounts], lines_max: int
) -> Sample:
    """What the next looks need to know of this one. The lines are the `lines_max` longest and maybe others, sorted."""
    return Sample(
        timeouts=timeouts,
        actions=actions,
        lines={
            str(line.line_id): LineCounts(waiting=line.waiting, completed=line.total_completed)
            for line in lines
            if line.waiting
        },
        others_at_most=lines[lines_max - 1].waiting if len(lines) >= lines_max else 0,
    )
