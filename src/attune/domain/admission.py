"""Who may leave a line: the executable specification of the server-side step `admit_lines`.

The database does this for many lines at once; here it is done for one, plainly. A test keeps the two equal.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from attune.domain.adaptive import starting_limit, within_bounds
from attune.domain.definitions import Adaptive

# How often one step looks for new heads after it met some that had ended.
ROUNDS_MAX = 5


class Op(StrEnum):
    """What a row of the admission log tells."""

    JOINED = "enq"
    REJOINED = "rejoin"
    ADMITTED = "admit"
    # Held a slot, and gave it back.
    RELEASED = "release"
    # Ended while it waited.
    REMOVED = "remove"
    LIMIT = "limit"
    PAUSED = "pause"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An execution in a line."""

    execution_id: int
    seq: int
    priority: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Who has the smaller place goes first."""
        return (-self.priority, self.seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """At most `max` are admitted within any window of this length."""

    max: int
    window: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line between two steps."""

    limit: int | None = None
    # Its limit moves by itself.
    adapts: bool = False
    rate: Rate | None = None
    active: frozenset[Entry] = frozenset()
    waiting: frozenset[Entry] = frozenset()
    next_seq: int = 1
    paused: bool = False
    # Its head waits for a worker that could run it.
    held: bool = False
    # When the last were admitted, newest first; kept only for a rate.
    recent: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One row of the admission log; `active` counts those who hold a slot after it."""

    op: Op
    limit_in_force: int | None
    active: int
    entry: Entry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The line after a step and what was logged; `again` if the step stopped at its bound with more to do."""

    line: Line
    log: tuple[LogRow, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a step is told of the world outside the line."""

    now: datetime
    is_queued: Callable[[int], bool]
    # Whether some living worker could run it, with or without room.
    is_runnable: Callable[[int], bool] = lambda _: True
    admitted_max: int = 500


def join(line: Line, execution_id: int, priority: int = 0) -> Step:
    """Stand at the end of those with the same priority."""
    entry = Entry(execution_id=execution_id, seq=line.next_seq, priority=priority)
    joined = replace(line, waiting=line.waiting | {entry}, next_seq=line.next_seq + 1)
    return Step(line=joined, log=(_log(joined, Op.JOINED, entry),))


def pause(line: Line) -> Step:
    """Nobody is admitted from now on; pausing again changes nothing."""
    paused = replace(line, paused=True)
    return Step(line=line) if line.paused else Step(line=paused, log=(_log(paused, Op.PAUSED),))


def resume(line: Line) -> Step:
    """Let the line go on; the log repeats the limit that is in force again."""
    resumed = replace(line, paused=False)
    return Step(line=resumed, log=(_log(resumed, Op.LIMIT),)) if line.paused else Step(line=line)


def release(line: Line, ended: AbstractSet[int]) -> Step:
    """Let executions that ended leave, whatever they held; for one that has left already, nothing happens."""
    log: list[LogRow] = []
    gone = [entry for entry in line.active | line.waiting if entry.execution_id in ended]
    for entry in sorted(gone, key=lambda entry: entry.seq):
        op = Op.RELEASED if entry in line.active else Op.REMOVED
        line = replace(line, active=line.active - {entry}, waiting=line.waiting - {entry})
        log.append(_log(line, op, entry))
    return Step(line=line, log=tuple(log))


def follow_policy(line: Line, limit: int | None, adaptive: Adaptive | None = None) -> Step:
    """Take over the limit that the policy has now; nobody loses a slot by it.

    A limit that moves by itself stays where it is, between the bounds that the policy has now.
    """
    if adaptive is not None and limit is not None:
        moved = line.limit if line.adapts else None
        limit = starting_limit(adaptive, limit) if moved is None else within_bounds(adaptive, moved)
    changed = replace(line, limit=limit, adapts=adaptive is not None)
    return Step(line=line) if changed == line else Step(line=changed, log=(_log(changed, Op.LIMIT),))


def adapt(line: Line, limit: int) -> Step:
    """Move the limit by itself; a line whose limit has become a fixed one keeps it."""
    changed = replace(line, limit=limit)
    return (
        Step(line=changed, log=(_log(changed, Op.LIMIT),)) if line.adapts and limit != line.limit else Step(line=line)
    )


def admit(line: Line, outside: Circumstances) -> Step:
    """Admit heads while there are free slots; those that ended meanwhile make room for the next."""
    line = replace(line, held=False)
    log: tuple[LogRow, ...] = ()
    for _ in range(ROUNDS_MAX):
        heads = sorted(line.waiting, key=lambda entry: entry.place)[: _free_slots(line, outside)]
        dead = {entry.execution_id for entry in heads if not outside.is_queued(entry.execution_id)}
        removed = release(line, dead)
        activated = _activate(removed.line, [entry for entry in heads if entry.execution_id not in dead], outside)
        line, log = activated.line, log + removed.log + activated.log
        if not dead:
            break
    return Step(line=line, log=log, again=_could_go_on(line, outside))


def _free_slots(line: Line, outside: Circumstances) -> int:
    if line.paused:
        return 0
    slots = outside.admitted_max
    if line.limit is not None:
        slots = min(slots, line.limit - len(line.active))
    if line.rate is not None:
        within = sum(at > outside.now - line.rate.window for at in line.recent)
        slots = min(slots, line.rate.max - within)
    return max(0, slots)


def _activate(line: Line, heads: list[Entry], outside: Circumstances) -> Step:
    """Give slots to heads in order, up to the first that no worker could run: it holds all behind it."""
    log: list[LogRow] = []
    for entry in heads:
        if not outside.is_runnable(entry.execution_id):
            return Step(line=replace(line, held=True), log=tuple(log))
        recent = (outside.now, *line.recent)[: line.rate.max] if line.rate else line.recent
        line = replace(line, active=line.active | {entry}, waiting=line.waiting - {entry}, recent=recent)
        log.append(_log(line, Op.ADMITTED, entry))
    return Step(line=line, log=tuple(log))


def _could_go_on(line: Line, outside: Circumstances) -> bool:
    return bool(line.waiting) and not line.held and _free_slots(line, outside) > 0


def _log(line: Line, op: Op, entry: Entry | None = None) -> LogRow:
    return LogRow(op=op, limit_in_force=line.limit, active=len(line.active), entry=entry)
