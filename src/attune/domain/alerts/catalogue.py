"""Every alert there is. Thresholds are those of the specification; what it leaves open is decided here."""

from collections.abc import Sequence
from typing import Final

from attune.domain.alerts.episodes import Alert, Finding, Severity
from attune.domain.alerts.readings import ActionCounts, LineReading, Readings, Sample
from attune.domain.json_values import Json

TIMEOUTS_PER_MINUTE: Final = 10
DEAD_LETTER_DEPTH: Final = 100
DEAD_LETTERS_PER_MINUTE: Final = 10
STALE_SECONDS: Final = 300.0
LONG_LINE: Final = 100
GROWTH: Final = 2
NEARLY_FULL: Final = 0.9
FAILED_SHARE: Final = 0.2
RUNS_MIN: Final = 20
OUTBOX_SECONDS: Final = 10.0

_TROUBLESHOOT: Final = "how-to/troubleshoot"


Findings = Sequence[Finding]


def _timeouts(readings: Readings) -> Findings | None:
    past = readings.minute_ago
    if past is None:
        return None
    rate = (readings.present.timeouts - past.sample.timeouts) * 60 / past.seconds
    return [Finding(facts={"per_minute": round(rate, 1)})] if rate > TIMEOUTS_PER_MINUTE else []


def _no_workers(readings: Readings) -> Findings:
    platform = readings.platform
    return [Finding(facts={"cordoned": platform.cordoned_workers})] if platform.active_workers == 0 else []


def _dead_letter_depth(readings: Readings) -> Findings:
    waiting, unhandled = readings.platform.dead_letters_open, readings.platform.dead_letters_unhandled
    facts = {"depth": waiting + unhandled, "open": waiting, "unhandled": unhandled}
    return [Finding(facts=facts)] if waiting + unhandled > DEAD_LETTER_DEPTH else []


def _dead_letter_rate(readings: Readings) -> Findings:
    rate = readings.platform.dead_letters_last_minute
    return [Finding(facts={"per_minute": rate})] if rate > DEAD_LETTERS_PER_MINUTE else []


def _stale_executions(readings: Readings) -> Findings:
    stale = readings.platform.stale_executions
    return [Finding(facts={"executions": stale})] if stale else []


def _of_line(line: LineReading, **more: int) -> Finding:
    facts: dict[str, Json] = {
        "line": line.line_id,
        "scope": line.scope,
        "group": line.group,
        "waiting": line.waiting,
        "active": line.active,
    }
    return Finding(subject=f"line:{line.line_id}", facts=facts | more)


def _long_lines(readings: Readings) -> Findings:
    return [_of_line(line) for line in readings.lines if line.waiting > LONG_LINE]


def _grown_lines(readings: Readings) -> Findings | None:
    past = readings.five_minutes_ago
    if past is None:
        return None
    return [
        _of_line(line, before=before)
        for line in readings.lines
        for before in [_waited(line, past.sample)]
        if line.waiting > LONG_LINE and line.waiting >= GROWTH * before
    ]


def _waited(line: LineReading, sample: Sample) -> int:
    known = sample.lines.get(str(line.line_id))
    return known.waiting if known else sample.others_at_most


def _full_lines(readings: Readings) -> Findings:
    return [
        _of_line(line, length_max=line.length_max)
        for line in readings.lines
        if line.waiting > NEARLY_FULL * line.length_max
    ]


def _stuck_lines(readings: Readings) -> Findings | None:
    past = readings.ten_minutes_ago
    if past is None:
        return None
    before = past.sample.lines
    return [
        _of_line(line)
        for line in readings.lines
        for known in [before.get(str(line.line_id))]
        if line.waiting and not line.on_purpose and known and known.completed == line.total_completed
    ]


def _failing_actions(readings: Readings) -> Findings | None:
    past = readings.five_minutes_ago
    if past is None:
        return None
    nothing = ActionCounts(ended=0, failed=0)
    found = []
    for ref, counts in readings.present.actions.items():
        before = past.sample.actions.get(ref, nothing)
        runs, failed = int(counts.ended - before.ended), int(counts.failed - before.failed)
        if runs >= RUNS_MIN and failed > FAILED_SHARE * runs:
            facts: dict[str, Json] = {
                "action": ref,
                "runs": runs,
                "failed": failed,
                "percent": round(100 * failed / runs),
            }
            found.append(Finding(subject=f"action:{ref}", facts=facts))
    return found


def _stalled_outbox(readings: Readings) -> Findings:
    seconds, topic = readings.platform.outbox_oldest_seconds, readings.platform.outbox_oldest_topic
    return [Finding(facts={"oldest_seconds": round(seconds, 1), "topic": topic})] if seconds > OUTBOX_SECONDS else []


def _used_default_partitions(readings: Readings) -> Findings:
    tables = readings.platform.default_partitions
    return [Finding(facts={"tables": ", ".join(tables)})] if tables else []


def _quarantined_actions(readings: Readings) -> Findings:
    return [
        Finding(subject=f"action:{held.ref}", facts={"action": held.ref, "workers_lost": held.workers_lost})
        for held in readings.quarantined
    ]


_OF_WORKERS: Final = (
    Alert(
        name="high_execution_timeout_rate",
        severity=Severity.WARNING,
        condition=f"more than {TIMEOUTS_PER_MINUTE} executions a minute end because a time was up",
        message="{per_minute} executions a minute end because a time was up",
        runbook=f"{_TROUBLESHOOT}/executions-time-out.md",
        find=_timeouts,
    ),
    Alert(
        name="no_active_workers",
        severity=Severity.CRITICAL,
        condition="no worker is active, alive and not cordoned",
        message="no worker can be given work; {cordoned} are cordoned",
        runbook=f"{_TROUBLESHOOT}/no-workers.md",
        find=_no_workers,
        # A platform that starts, and the only worker that starts again, are no news.
        for_seconds=15.0,
        clear_seconds=0.0,
    ),
    Alert(
        name="stale_executions",
        severity=Severity.WARNING,
        condition=f"an execution has been scheduled for more than {STALE_SECONDS / 60:g} minutes without being started",
        message="{executions} executions have been scheduled for more than five minutes",
        runbook=f"{_TROUBLESHOOT}/executions-are-stuck.md",
        find=_stale_executions,
        # Whose time is up at the same moment is moved on within seconds.
        for_seconds=15.0,
    ),
    Alert(
        name="action_quarantined",
        severity=Severity.CRITICAL,
        condition="an action lost several workers in a row and is held until somebody releases it",
        message="{action} is held: {workers_lost} workers in a row were lost while they ran it",
        runbook="how-to/take-a-worker-out.md#an-action-that-takes-workers-down",
        find=_quarantined_actions,
        clear_seconds=0.0,
    ),
    Alert(
        name="failure_rate",
        severity=Severity.WARNING,
        condition=f"of at least {RUNS_MIN} runs of an action within five minutes more than {FAILED_SHARE:.0%} failed",
        message="{failed} of {runs} runs of {action} within five minutes failed ({percent} %)",
        runbook=f"{_TROUBLESHOOT}/many-failures.md",
        find=_failing_actions,
    ),
)

_OF_LINES: Final = (
    Alert(
        name="queue_long",
        severity=Severity.WARNING,
        condition=f"more than {LONG_LINE} wait in a line",
        message="{waiting} wait in line {line} of {scope}",
        runbook=f"{_TROUBLESHOOT}/lines-grow.md",
        find=_long_lines,
        # A burst that is gone at once is what lines are for.
        for_seconds=30.0,
    ),
    Alert(
        name="queue_growth",
        severity=Severity.WARNING,
        condition=f"more than {LONG_LINE} wait in a line, at least twice as many as five minutes before",
        message="{waiting} wait in line {line} of {scope}; five minutes ago at most {before} did",
        runbook=f"{_TROUBLESHOOT}/lines-grow.md",
        find=_grown_lines,
        for_seconds=30.0,
    ),
    Alert(
        name="queue_near_full",
        severity=Severity.CRITICAL,
        condition=f"a line is filled to more than {NEARLY_FULL:.0%}; requests beyond its length are refused",
        message="{waiting} of at most {length_max} wait in line {line} of {scope}",
        runbook=f"{_TROUBLESHOOT}/lines-grow.md",
        find=_full_lines,
    ),
    Alert(
        name="queue_stuck",
        severity=Severity.CRITICAL,
        condition="somebody waits in a line and nobody has completed for ten minutes; "
        "paused lines and those whose rate limit lets nobody through wait on purpose",
        message="{waiting} wait in line {line} of {scope} and nobody completes; {active} hold its slots",
        runbook=f"{_TROUBLESHOOT}/lines-grow.md",
        find=_stuck_lines,
        clear_seconds=0.0,
    ),
)

_OF_MESSAGES: Final = (
    Alert(
        name="dlq_buildup",
        severity=Severity.WARNING,
        condition=f"more than {DEAD_LETTER_DEPTH} dead letters wait for a person or for their handler",
        message="{depth} dead letters: {open} wait for a person, {unhandled} for their handler",
        runbook=f"{_TROUBLESHOOT}/dead-letters-not-handled.md",
        find=_dead_letter_depth,
    ),
    Alert(
        name="dlq_rate",
        severity=Severity.WARNING,
        condition=f"more than {DEAD_LETTERS_PER_MINUTE} dead letters came within a minute",
        message="{per_minute} dead letters came within a minute",
        runbook=f"{_TROUBLESHOOT}/many-dead-letters.md",
        find=_dead_letter_rate,
    ),
    Alert(
        name="outbox_stalled",
        severity=Severity.CRITICAL,
        condition=f"a message that is due has waited for more than {OUTBOX_SECONDS:g} seconds; a worker's own have "
        "their time to live",
        message="a message of {topic} has waited for {oldest_seconds} seconds",
        runbook=f"{_TROUBLESHOOT}/messages-pile-up.md",
        find=_stalled_outbox,
        # A single message that is tried again is not a stall.
        for_seconds=10.0,
    ),
    Alert(
        name="partition_default_used",
        severity=Severity.CRITICAL,
        condition="a row found no partition of its day",
        message="rows of {tables} found no partition of their day",
        runbook=f"{_TROUBLESHOOT}/partitions-missing.md",
        find=_used_default_partitions,
        clear_seconds=0.0,
    ),
)

ALERTS: Final[Sequence[Alert]] = (*_OF_WORKERS, *_OF_LINES, *_OF_MESSAGES)
