"""Why an execution is where it is, in one sentence: a table of reasons, of which the first that applies is told.

Another capability adds its rows to `REASONS`, before the more general ones, and its facts to `Facts`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.execution import TERMINAL, Status
from attune.domain.json_values import Json

# Shorter times are told in seconds, and shorter ones than the second in minutes.
SECONDS_TOLD_BELOW = 120
MINUTES_TOLD_BELOW = 7200


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """The worker an execution is on, or is pinned to."""

    id: int
    name: str
    # As it is stored, or `unresponsive` where the heartbeats stopped and nobody has noticed yet.
    status: str
    # Dispatches it let expire in the last minutes.
    recent_dead_letters: int = 0

    @property
    def present(self) -> bool:
        """Whether it may be expected to do what it was given."""
        return self.status in {"active", "draining"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Somebody who holds a slot."""

    execution_id: int
    worker: str | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFacts:
    """The line an execution waits in, and its place there."""

    id: int
    name: str
    # Counted from 1; counting ends at a limit, then it is the least it can be.
    position: int
    waiting: int
    limit: int | None
    # Why the limit is what it is, if it ever changed.
    limit_reason: str | None
    active: int
    holders: Sequence[Holder]
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    rate_limited_until: datetime | None
    completions_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """The living workers, as far as this execution could use them."""

    runner: str
    labels: Mapping[str, Json]
    isolation: str | None
    # Alive and with the runtime; of these, those that also have the labels and the isolation.
    with_runtime: int
    capable: int
    capacity: int
    load: int
    # Alive and able, whether or not they are given work: cordoned and silent ones too.
    living: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineFacts:
    """Its action is held, because it took workers down with it."""

    action_ref: str
    since: datetime
    workers_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything the reasons look at."""

    now: datetime
    execution_id: int
    status: Status
    attempt: int
    tries: int
    max_attempts: int
    error_code: str | None
    error_message: str | None
    reason: str
    not_before: datetime | None
    pinned: bool
    # It waits in no line, because this ancestor holds a slot there.
    inherits_slot_of: int | None
    scheduled_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    worker: WorkerFacts | None
    line: LineFacts | None
    pool: PoolFacts
    quarantine: QuarantineFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer: a sentence for people, and a code that does not change."""

    sentence: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One row of the table."""

    code: str
    applies: Callable[[Facts], bool]
    sentence: Callable[[Facts], str]


def explain(facts: Facts) -> Explanation:
    """The first reason that applies; the last row applies always."""
    reason = next(row for row in REASONS if row.applies(facts))
    return Explanation(sentence=reason.sentence(facts), code=reason.code)


def _in_state(*statuses: Status) -> Callable[[Facts], bool]:
    return lambda facts: facts.status in statuses


def _waits_in_line(holds: Callable[[Facts, LineFacts], bool]) -> Callable[[Facts], bool]:
    return lambda facts: facts.status is Status.QUEUED and facts.line is not None and holds(facts, facts.line)


def _line(facts: Facts) -> LineFacts:
    if facts.line is None:
        raise ValueError("a reason about lines was told of an execution that waits in none")
    return facts.line


def _lies_ahead(facts: Facts) -> bool:
    return facts.status is Status.REQUESTED and facts.not_before is not None and facts.not_before > facts.now


def _pinned_to_nobody(facts: Facts) -> bool:
    return (
        facts.pinned
        and facts.status not in TERMINAL | {Status.RUNNING, Status.CANCELING}
        and (facts.worker is None or not facts.worker.present)
    )


def _clock(at: datetime | None, facts: Facts) -> str:
    if at is None:
        return "an unknown time"
    return f"{at:%H:%M:%S} UTC" if at.date() == facts.now.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _since(at: datetime | None, facts: Facts) -> str:
    return "" if at is None else f" since {_clock(at, facts)} ({_long((facts.now - at).total_seconds())})"


def _long(seconds: float) -> str:
    if seconds < SECONDS_TOLD_BELOW:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < MINUTES_TOLD_BELOW else f"{seconds / 3600:.0f} h"


def _worker(facts: Facts) -> str:
    return "a worker that is gone" if facts.worker is None else f"worker {facts.worker.name}"


def _ended(facts: Facts) -> str:
    took = ""
    if facts.started_at is not None and facts.ended_at is not None:
        took = f" after {_long((facts.ended_at - facts.started_at).total_seconds())} on {_worker(facts)}"
    why = facts.error_message or facts.reason
    # `failed` and `cancelled` as codes would only repeat the status.
    code = f" ({facts.error_code})" if facts.error_code and facts.error_code != facts.status else ""
    return f"{facts.status} at {_clock(facts.ended_at, facts)}{took}{code}" + (f": {why}" if why else "")


def _running(facts: Facts) -> str:
    tries = f", try {facts.tries} of {facts.max_attempts}" if facts.max_attempts > 1 else ""
    return f"running on {_worker(facts)}{_since(facts.started_at, facts)}{tries}"


def _not_picked_up(facts: Facts) -> str:
    expired = facts.worker.recent_dead_letters if facts.worker else 0
    warning = f"; that worker let {expired} dispatches expire in the last minutes" if expired else ""
    return f"given to {_worker(facts)} and not yet picked up{_since(facts.scheduled_at, facts)}{warning}"


def _pinned_absent(facts: Facts) -> str:
    state = "does not exist" if facts.worker is None else f"is {facts.worker.status}"
    name = "its worker" if facts.worker is None else f"worker {facts.worker.name}"
    return f"pinned to {name}, which {state}; it waits for that worker or its end"


def _no_worker(facts: Facts) -> str:
    pool = facts.pool
    if not pool.with_runtime:
        return f"no live worker has runtime {pool.runner}{_place(facts)}"
    wanted = [f"label {name}={value}" for name, value in sorted(pool.labels.items())]
    wanted += [f"isolation {pool.isolation}"] if pool.isolation else []
    return f"no live worker with runtime {pool.runner} has {' and '.join(wanted) or 'what it needs'}{_place(facts)}"


def _workers_out(facts: Facts) -> str:
    living = facts.pool.living
    workers = "the only worker that could run it is" if living == 1 else f"all {living} workers that could run it are"
    return f"{workers} cordoned, drained or silent{_place(facts)}"


def _waits_for_anybody(facts: Facts) -> bool:
    return facts.status in {Status.QUEUED, Status.SCHEDULING} and not facts.pinned and not facts.pool.capable


def _place(facts: Facts) -> str:
    if facts.line is None or facts.status is not Status.QUEUED:
        return ""
    return f"; position {facts.line.position} of {facts.line.waiting} in line {facts.line.name}"


def _quarantined(facts: Facts) -> str:
    held = facts.quarantine
    if held is None:
        raise ValueError("a reason about quarantine was told of an execution whose action is not held")
    return (
        f"action {held.action_ref} is quarantined{_since(held.since, facts)}: {held.workers_lost} workers in a row were"
        f" lost while they ran it; it waits, without a timeout, until `attune action release {held.action_ref}`"
    )


def _no_room(facts: Facts) -> str:
    pool = facts.pool
    workers = "1 worker that could run it" if pool.capable == 1 else f"{pool.capable} workers that could run it"
    return f"waits for room on a worker: {workers}, {pool.load} of {pool.capacity} places taken"


def _retry(facts: Facts) -> str:
    why = f"; {facts.reason}" if facts.reason else ""
    return f"retry {facts.tries + 1} of {facts.max_attempts} at {_clock(facts.not_before, facts)}{why}"


def _paused(facts: Facts) -> str:
    line = _line(facts)
    by = f" by {line.paused_by}" if line.paused_by else ""
    return f"line {line.name} is paused{by}{_since(line.paused_at, facts)}; position {line.position} of {line.waiting}"


def _rate_limited(facts: Facts) -> str:
    return f"rate-limited until {_clock(_line(facts).rate_limited_until, facts)}{_place(facts)}"


def _in_line(facts: Facts) -> str:
    line = _line(facts)
    limit = "" if line.limit is None else f" of {line.limit}"
    slots = f"; {line.active}{limit} slots held" + (f" by {_holders(line)}" if line.holders else "")
    why = f" (limit: {line.limit_reason})" if line.limit is not None and line.limit_reason else ""
    return f"position {line.position} of {line.waiting} in line {line.name}{slots}{why}{_expected(line)}"


def _holders(line: LineFacts) -> str:
    told = [
        f"{each.execution_id} ({f'worker {each.worker}, ' if each.worker else ''}{_long(each.seconds)})"
        for each in line.holders
    ]
    if (more := line.active - len(line.holders)) > 0:
        told.append(f"{more} more")
    word = "execution" if len(told) == 1 else "executions"
    return f"{word} {', '.join(told[:-1])}{' and ' if told[:-1] else ''}{told[-1]}"


def _expected(line: LineFacts) -> str:
    if line.completions_per_second <= 0:
        return ""
    return f"; expected to start in about {_long(line.position / line.completions_per_second)}"


REASONS: Sequence[Reason] = (
    Reason(code="succeeded", applies=_in_state(Status.SUCCEEDED), sentence=_ended),
    Reason(code="failed", applies=_in_state(Status.FAILED), sentence=_ended),
    Reason(code="timeout", applies=_in_state(Status.TIMEOUT), sentence=_ended),
    Reason(code="cancelled", applies=_in_state(Status.CANCELLED), sentence=_ended),
    Reason(
        code="canceling",
        applies=_in_state(Status.CANCELING),
        sentence=lambda facts: f"asked to stop; {_worker(facts)} has not reported its end yet",
    ),
    Reason(
        code="worker_silent",
        applies=lambda facts: facts.status is Status.RUNNING and facts.worker is not None and not facts.worker.present,
        sentence=lambda facts: f"{_running(facts)}, which is {facts.worker.status if facts.worker else 'gone'}",
    ),
    Reason(code="running", applies=_in_state(Status.RUNNING), sentence=_running),
    Reason(code="retry_delayed", applies=lambda facts: _lies_ahead(facts) and facts.tries > 0, sentence=_retry),
    Reason(
        code="not_before",
        applies=_lies_ahead,
        sentence=lambda facts: f"asked to start at {_clock(facts.not_before, facts)}, which lies ahead",
    ),
    Reason(code="pinned_worker_absent", applies=_pinned_to_nobody, sentence=_pinned_absent),
    Reason(code="not_picked_up", applies=_in_state(Status.SCHEDULED), sentence=_not_picked_up),
    Reason(
        code="quarantined",
        applies=lambda facts: (
            facts.status in {Status.REQUESTED, Status.QUEUED, Status.SCHEDULING}
            and not facts.pinned
            and facts.quarantine is not None
        ),
        sentence=_quarantined,
    ),
    Reason(code="line_paused", applies=_waits_in_line(lambda _, line: line.paused), sentence=_paused),
    Reason(
        code="in_line",
        applies=_waits_in_line(lambda _, line: line.limit is not None and line.active >= line.limit),
        sentence=_in_line,
    ),
    Reason(
        code="workers_out",
        applies=lambda facts: _waits_for_anybody(facts) and facts.pool.living > 0,
        sentence=_workers_out,
    ),
    Reason(code="no_worker", applies=_waits_for_anybody, sentence=_no_worker),
    Reason(
        code="rate_limited",
        applies=_waits_in_line(lambda _, line: line.rate_limited_until is not None),
        sentence=_rate_limited,
    ),
    Reason(code="in_line", applies=_waits_in_line(lambda _, __: True), sentence=_in_line),
    Reason(code="waiting_for_room", applies=_in_state(Status.SCHEDULING), sentence=_no_room),
    Reason(
        code="waiting",
        applies=_in_state(Status.WAITING),
        sentence=lambda _: "waits for something that it asked for",
    ),
    Reason(
        code="requested",
        applies=lambda _: True,
        sentence=lambda _: "accepted; no executor has looked at it yet",
    ),
)
