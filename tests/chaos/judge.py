"""Says what a run has broken: pure functions of what clients, ledger, rows and logs have written down."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.chaos.plan import Work
from tests.chaos.workload import Told
from tests.witness.ledger import END, START, Line
from tests.witness.line_log import LineStory, LogRow, find_excess, find_inversions

# Ends that a fault may bring to work that must not be repeated.
LOST_CODES = frozenset({"worker_lost", "launcher_lost", "lease_lost", "worker_shutdown", "fenced"})
# The end of work that met a full disk, unless its own policy tries again what failed.
NO_SPACE = "no_space"
# The end of work with a time to live of its own when that is over and no worker is left; it has not begun.
UNSERVED = "worker_queue_ttl_expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An execution as its row tells it."""

    id: int
    action_ref: str
    status: str
    code: str | None
    attempt: int
    tries: int
    created: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that was written down about a run."""

    told: Sequence[Told]
    executions: Sequence[Ended]
    ledger: Sequence[Line]
    admissions: Mapping[int, Sequence[LogRow]]
    # Rows of tables that must be empty when nothing is left to do, and processes nobody waits for.
    leftovers: Mapping[str, int] = field(default_factory=dict)
    # What did not end in time, each with what it waits for.
    waiting: Sequence[str] = ()
    # What sweeps had to mend, by sweep.
    mended: Mapping[str, int] = field(default_factory=dict)
    check: str = ""
    # What PostgreSQL said about locks that were taken in different orders.
    deadlocks: Sequence[str] = ()
    # What services said of themselves that was worse than a warning, by its name.
    errors: Mapping[str, int] = field(default_factory=dict)
    # Rows that changed when messages were applied again.
    replayed: Sequence[str] = ()
    in_peace: bool = False

    @property
    def accepted(self) -> list[int]:
        return [each for told in self.told for each in told.accepted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is broken, by the promise it breaks."""

    lost: list[str]
    duplicated: list[str]
    order: list[str]
    limit: list[str]
    leaked: list[str]
    ends: list[str]
    other: list[str]

    @property
    def broken(self) -> list[str]:
        """All of it."""
        return [*self.lost, *self.duplicated, *self.order, *self.limit, *self.leaked, *self.ends, *self.other]


def judge(record: Record) -> Verdict:
    """Ask every judge."""
    stories = _stories(record)
    return Verdict(
        lost=[*find_lost(record), *find_unbalanced(record), *find_unworked(record), *record.waiting],
        duplicated=[*find_doubled(record), *find_forbidden_tries(record)],
        order=[fault for story in stories for fault in find_inversions(story)],
        limit=[*(fault for story in stories for fault in find_excess(story)), *find_overlaps(record)],
        leaked=[f"{count} left in {what}" for what, count in record.leftovers.items() if count],
        ends=find_wrong_ends(record),
        other=[
            *(fault for told in record.told for fault in told.contradictions),
            *(find_unrest(record) if record.in_peace else ()),
            *([f"attune check: {record.check}"] if record.check else ()),
            *record.deadlocks,
            *record.replayed,
        ],
    )


def find_lost(record: Record) -> list[str]:
    """Accepted and gone, or there without anybody having been told; a client asks until it is told."""
    there = {each.id for each in record.executions}
    accepted = set(record.accepted)
    return [
        *(f"{each} was accepted and is not there" for each in sorted(accepted - there)),
        *(f"{each} exists and nobody was told" for each in sorted(there - accepted)),
    ]


def find_unbalanced(record: Record) -> list[str]:
    """Everybody joined its line once, and left as often as it had joined, delayed retries included."""
    joined: Counter[int | None] = Counter()
    rejoined: Counter[int | None] = Counter()
    left: Counter[int | None] = Counter()
    for rows in record.admissions.values():
        joined.update(row.execution_id for row in rows if row.op == "enq")
        rejoined.update(row.execution_id for row in rows if row.op == "rejoin")
        left.update(row.execution_id for row in rows if row.op in {"release", "remove"})
    return [
        f"{each} joined {joined[each]} times, came back {rejoined[each]} times and left {left[each]} times"
        for told in record.told
        if told.track.limit is not None
        for each in told.accepted
        if joined[each] != 1 or left[each] != 1 + rejoined[each]
    ]


def find_unworked(record: Record) -> list[str]:
    """What succeeded has said so itself, in the attempt that counts."""
    ended = {line.key for line in record.ledger if line.what == END}
    speaks = {each for told in record.told for each, work in told.work_of.items() if work.runner != "native"}
    return [
        f"{row.id} succeeded in attempt {row.attempt} without having run to its end"
        for row in record.executions
        if row.status == "succeeded" and row.id in speaks and (row.id, row.attempt) not in ended
    ]


def find_doubled(record: Record) -> list[str]:
    """One start for each attempt, and one answer for each execution."""
    starts = Counter(line.key for line in record.ledger if line.what == START)
    answers = Counter(record.accepted)
    return [
        *(f"{key[0]}, attempt {key[1]}, started {count} times" for key, count in starts.items() if count > 1),
        *(f"{each} was the answer to {count} requests" for each, count in answers.items() if count > 1),
    ]


def find_forbidden_tries(record: Record) -> list[str]:
    """What must not be repeated is started once, whatever happens."""
    attempts: dict[int, set[int]] = defaultdict(set)
    for line in record.ledger:
        attempts[line.execution].add(line.attempt)
    return [
        f"{each} must not be repeated and was started in attempts {sorted(attempts[each])}"
        for told in record.told
        for each, work in told.work_of.items()
        if not work.repeatable and len(attempts[each]) > 1
    ]


def find_overlaps(record: Record) -> list[str]:
    """Attempts that counted and ran at the same time, more than the limit of their line.

    The start is written after the slot was given and the end before it is given back, so what the ledger shows at once
    did hold slots at once. What a lost worker left behind held none any more and is not counted.
    """
    counted = {(row.id, row.attempt) for row in record.executions if row.status == "succeeded"}
    told_of = {each: told for told in record.told if told.track.limit is not None for each in told.accepted}
    running: Counter[str] = Counter()
    found = []
    for line in record.ledger:
        told = told_of.get(line.execution)
        if told is None or line.key not in counted:
            continue
        running[told.track.name] += 1 if line.what == START else -1
        if running[told.track.name] > (told.track.limit or 0):
            found.append(f"{running[told.track.name]} of {told.track.name} ran at once, {told.track.limit} may")
    return found


def find_wrong_ends(record: Record) -> list[str]:
    """Everything succeeds, unless it was given up as asked for, or a fault ended it and it must not be repeated."""
    work_of = {each: work for told in record.told for each, work in told.work_of.items()}
    told_of = {each: told for told in record.told for each in told.accepted}
    started = {line.execution for line in record.ledger}
    begun = {line.key for line in record.ledger}
    cancelled = {each for told in record.told for each in told.cancelled}
    return [
        f"{row.id} ({row.action_ref}) ended as {row.status} ({row.code}) in attempt {row.attempt}"
        for row in record.executions
        if row.ended_at is not None
        and (row.status != "succeeded" or _overruns(told_of.get(row.id), row.id))
        and not (row.status == "cancelled" and row.id in cancelled)
        and not _is_meant(row, told_of.get(row.id), started)
        and not (row.status == "failed" and not record.in_peace and _is_excused(row, work_of.get(row.id), begun))
    ]


def _overruns(told: Told | None, execution_id: int) -> bool:
    return told is not None and execution_id in told.work_of and told.work_of[execution_id].overruns


def _is_meant(row: Ended, told: Told | None, started: Collection[int]) -> bool:
    """Who takes too long ends so; who waited too long in line did wait so long, and was never begun."""
    if told is None or row.ended_at is None:
        return False
    if row.status == "timeout":
        return _overruns(told, row.id)
    patience = told.track.queue_timeout_seconds
    waited = (row.ended_at - row.created).total_seconds()
    return row.code == "queue_timeout" and patience is not None and waited >= patience and row.id not in started


def _is_excused(row: Ended, work: Work | None, begun: Collection[tuple[int, int]]) -> bool:
    if work is None or work.retry_seconds is not None:
        return False
    if row.code == UNSERVED:
        return work.ttl_seconds is not None and (row.id, row.attempt) not in begun
    return row.code == NO_SPACE or (row.code in LOST_CODES and not work.repeatable)


def find_unrest(record: Record) -> list[str]:
    """Where nothing was harmed, no sweep has anything to mend and nothing is tried twice without being meant to."""
    work_of = {each: work for told in record.told for each, work in told.work_of.items()}
    found = [f"the sweep {sweep!r} mended {count}, though nothing was harmed" for sweep, count in record.mended.items()]
    for row in record.executions:
        work = work_of.get(row.id)
        tries = 2 if work is not None and work.retry_seconds is not None else 1
        if row.status == "succeeded" and row.tries != tries:
            found.append(f"{row.id} took {row.tries} tries, though nothing was harmed")
    return found


def _stories(record: Record) -> list[LineStory]:
    told_of = {each: told for told in record.told for each in told.accepted}
    found = []
    for rows in record.admissions.values():
        told = next((told_of[row.execution_id] for row in rows if row.execution_id in told_of), None)
        if told is None:
            continue
        # Who was never told of comes last, and is found by another judge.
        known = set(told.accepted)
        strangers = [row.execution_id for row in rows if row.op == "enq" and row.execution_id not in known]
        accepted = [*told.accepted, *(each for each in strangers if each is not None)]
        most = told.track.limit or 0
        limits = range(1, most + 1) if told.track.adaptive else {most}
        found.append(LineStory(rows=rows, accepted=accepted, limits=limits))
    return found
