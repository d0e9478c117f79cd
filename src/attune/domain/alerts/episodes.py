"""When an alert begins, fires and is over: one episode each, however often and by whomever it is looked at."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from attune.domain.alerts.readings import Readings
from attune.domain.json_values import Json

# What is not true for this long is over; a shorter break belongs to the same episode.
CLEAR_SECONDS = 60.0
# If nobody looked for longer than this, nobody knows whether it was true all the time: the wait begins anew.
GAP_SECONDS = 60.0
# One alert is open about so many things at most; of any more nobody would read.
SUBJECTS_MAX = 100


class Severity(StrEnum):
    """How soon somebody should look."""

    WARNING = "warning"
    CRITICAL = "critical"


class State(StrEnum):
    """Where an episode is."""

    PENDING = "pending"  # True, but not for long enough to tell anybody.
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong right now."""

    # What it is about: `line:ID`, `action:REF`, or nothing for the whole installation.
    subject: str = ""
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing to watch for: the condition, how long it must hold, and what to do about it."""

    name: str
    severity: Severity
    # When it is raised, in words for the reference.
    condition: str
    # Filled in with the facts of a finding.
    message: str
    # The page that helps, below `docs/`.
    runbook: str
    # None: cannot be told from these readings, so that nothing begins and nothing ends.
    find: Callable[[Readings], Sequence[Finding] | None]
    for_seconds: float = 0.0
    clear_seconds: float = CLEAR_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An alert about one thing, from when it was first seen to its end."""

    name: str
    subject: str
    severity: Severity
    state: State
    message: str
    facts: Mapping[str, Json]
    since: datetime
    seen_at: datetime
    fired_at: datetime | None = None
    resolved_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one look changed: who waits to fire, who fired just now, who still does, and whose end it was."""

    pending: Sequence[Episode] = ()
    fired: Sequence[Episode] = ()
    still: Sequence[Episode] = ()
    resolved: Sequence[Episode] = ()
    # Waited to fire and need not any more.
    dropped: Sequence[Episode] = ()


Step = tuple[Episode | None, Episode | None]


def evaluate(alerts: Sequence[Alert], readings: Readings, standing: Sequence[Episode], *, now: datetime) -> Turn:
    """Compare what is found with what stands open; at most one episode of an alert and a subject is ever open."""
    steps: list[Step] = []
    for alert in alerts:
        open_ones = {each.subject: each for each in standing if each.name == alert.name}
        steps.extend(_steps_of(alert, readings, open_ones, now=now))
    known = {alert.name for alert in alerts}
    # What this version does not watch for any more is over.
    steps.extend((each, _resolve(each, now)) for each in standing if each.name not in known)
    return _sort(steps)


def _steps_of(alert: Alert, readings: Readings, open_ones: Mapping[str, Episode], *, now: datetime) -> Iterator[Step]:
    findings = alert.find(readings)
    if findings is None:
        yield from ((episode, episode) for episode in open_ones.values())
        return
    found = {finding.subject: finding for finding in findings}
    for subject, episode in open_ones.items():
        yield episode, _go_on(alert, episode, found.get(subject), now)
    fresh = [finding for subject, finding in found.items() if subject not in open_ones]
    for finding in fresh[: max(0, SUBJECTS_MAX - len(open_ones))]:
        yield None, _begin(alert, finding, now)


def _begin(alert: Alert, finding: Finding, now: datetime) -> Episode:
    fires = alert.for_seconds <= 0
    return Episode(
        name=alert.name,
        subject=finding.subject,
        severity=alert.severity,
        state=State.FIRING if fires else State.PENDING,
        message=alert.message.format(**finding.facts),
        facts=finding.facts,
        since=now,
        seen_at=now,
        fired_at=now if fires else None,
    )


def _go_on(alert: Alert, episode: Episode, finding: Finding | None, now: datetime) -> Episode | None:
    """What becomes of an open episode; None: it waited to fire, and need not any more."""
    unseen_seconds = (now - episode.seen_at).total_seconds()
    if finding is None:
        within_break = episode.state is State.FIRING and unseen_seconds < alert.clear_seconds
        return episode if within_break else _resolve(episode, now)
    seen = replace(episode, seen_at=now, facts=finding.facts, message=alert.message.format(**finding.facts))
    if episode.state is State.FIRING:
        return seen
    if unseen_seconds > GAP_SECONDS:
        return _begin(alert, finding, now)
    if (now - episode.since).total_seconds() >= alert.for_seconds:
        return replace(seen, state=State.FIRING, fired_at=now)
    return seen


def _resolve(episode: Episode, now: datetime) -> Episode | None:
    return None if episode.state is State.PENDING else replace(episode, state=State.RESOLVED, resolved_at=now)


def _sort(steps: Iterable[Step]) -> Turn:
    pending, fired, still, resolved, dropped = [], [], [], [], []
    for before, after in steps:
        if after is None:
            if before is not None:
                dropped.append(before)
        elif after.state is State.PENDING:
            pending.append(after)
        elif after.state is State.RESOLVED:
            resolved.append(after)
        elif before is not None and before.state is State.FIRING:
            still.append(after)
        else:
            fired.append(after)
    return Turn(pending=pending, fired=fired, still=still, resolved=resolved, dropped=dropped)
