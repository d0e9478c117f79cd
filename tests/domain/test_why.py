"""Why an execution is where it is: one test for each reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from attune.domain.execution import Status
from attune.domain.why import REASONS, Facts, Holder, LineFacts, PoolFacts, QuarantineFacts, WorkerFacts, explain

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
POOL = PoolFacts(runner="shell", labels={}, isolation=None, with_runtime=2, capable=2, capacity=8, load=8)
LINE = LineFacts(
    id=3,
    name="core.http.get[host=a]",
    position=4,
    waiting=9,
    limit=2,
    limit_reason=None,
    active=2,
    holders=[Holder(execution_id=812, worker="w1", seconds=40), Holder(execution_id=815, worker=None, seconds=2)],
    paused=False,
    paused_by=None,
    paused_at=None,
    rate_limited_until=None,
    completions_per_second=0.16,
)
ALIVE = WorkerFacts(id=1, name="w1", status="active")
LOST = WorkerFacts(id=1, name="w1", status="lost")


def facts(status: Status, **changes: object) -> Facts:
    plain = Facts(
        now=NOW,
        execution_id=42,
        status=status,
        attempt=1,
        tries=0,
        max_attempts=1,
        error_code=None,
        error_message=None,
        reason="",
        not_before=None,
        pinned=False,
        inherits_slot_of=None,
        scheduled_at=None,
        started_at=None,
        ended_at=None,
        worker=None,
        line=None,
        pool=POOL,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # callers change what they name


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


ENDED = {"started_at": ago(42), "ended_at": ago(2), "worker": ALIVE}
TOLD: list[tuple[str, Facts, str]] = [
    ("succeeded", facts(Status.SUCCEEDED, **ENDED), "succeeded at 11:59:58 UTC after 40 s on worker w1"),
    (
        "failed",
        facts(Status.FAILED, error_code="exit_code", error_message="exited with 3", **ENDED),
        "failed at 11:59:58 UTC after 40 s on worker w1 (exit_code): exited with 3",
    ),
    (
        "failed",
        facts(Status.FAILED, error_code="queue_timeout", error_message="waited longer", ended_at=ago(90_000)),
        "failed at 2026-05-03 11:00:00 UTC (queue_timeout): waited longer",
    ),
    (
        "timeout",
        facts(Status.TIMEOUT, error_code="timeout", error_message="longer than 40 s", **ENDED),
        "timeout at 11:59:58 UTC after 40 s on worker w1: longer than 40 s",
    ),
    (
        "cancelled",
        facts(Status.CANCELLED, error_code="cancelled", error_message="cancelled by ana", ended_at=ago(2)),
        "cancelled at 11:59:58 UTC: cancelled by ana",
    ),
    (
        "canceling",
        facts(Status.CANCELING, worker=ALIVE),
        "asked to stop; worker w1 has not reported its end yet",
    ),
    (
        "running",
        facts(Status.RUNNING, worker=ALIVE, started_at=ago(40), tries=1, max_attempts=3),
        "running on worker w1 since 11:59:20 UTC (40 s), try 1 of 3",
    ),
    (
        "worker_silent",
        facts(Status.RUNNING, worker=LOST, started_at=ago(600)),
        "running on worker w1 since 11:50:00 UTC (10 min), which is lost",
    ),
    (
        "retry_delayed",
        facts(
            Status.REQUESTED, tries=1, max_attempts=3, not_before=NOW + timedelta(seconds=67), reason="try 1 ended: x"
        ),
        "retry 2 of 3 at 12:01:07 UTC; try 1 ended: x",
    ),
    (
        "not_before",
        facts(Status.REQUESTED, not_before=NOW + timedelta(days=1)),
        "asked to start at 2026-05-05 12:00:00 UTC, which lies ahead",
    ),
    ("requested", facts(Status.REQUESTED), "accepted; no executor has looked at it yet"),
    (
        "pinned_worker_absent",
        facts(Status.SCHEDULED, pinned=True, worker=LOST),
        "pinned to worker w1, which is lost; it waits for that worker or its end",
    ),
    (
        "not_picked_up",
        facts(Status.SCHEDULED, worker=ALIVE, scheduled_at=ago(3)),
        "given to worker w1 and not yet picked up since 11:59:57 UTC (3 s)",
    ),
    (
        "line_paused",
        facts(Status.QUEUED, line=replace(LINE, paused=True, paused_by="ana", paused_at=ago(60))),
        "line core.http.get[host=a] is paused by ana since 11:59:00 UTC (60 s); position 4 of 9",
    ),
    (
        "no_worker",
        facts(Status.SCHEDULING, pool=replace(POOL, with_runtime=0, capable=0)),
        "no live worker has runtime shell",
    ),
    (
        "no_worker",
        facts(Status.QUEUED, line=replace(LINE, active=0, holders=[]), pool=replace(POOL, with_runtime=0, capable=0)),
        "no live worker has runtime shell; position 4 of 9 in line core.http.get[host=a]",
    ),
    (
        "no_worker",
        facts(Status.SCHEDULING, pool=replace(POOL, capable=0, labels={"zone": "b"}, isolation="user")),
        "no live worker with runtime shell has label zone=b and isolation user",
    ),
    (
        "workers_out",
        facts(Status.SCHEDULING, pool=replace(POOL, capable=0, living=1)),
        "the only worker that could run it is cordoned, drained or silent",
    ),
    (
        "quarantined",
        facts(
            Status.SCHEDULING,
            quarantine=QuarantineFacts(action_ref="demo.crash", since=ago(60), workers_lost=3),
        ),
        (
            "action demo.crash is quarantined since 11:59:00 UTC (60 s): 3 workers in a row were lost while they"
            " ran it; it waits, without a timeout, until `attune action release demo.crash`"
        ),
    ),
    (
        "rate_limited",
        facts(
            Status.QUEUED,
            line=replace(LINE, active=1, rate_limited_until=NOW + timedelta(seconds=5)),
        ),
        "rate-limited until 12:00:05 UTC; position 4 of 9 in line core.http.get[host=a]",
    ),
    (
        "in_line",
        facts(Status.QUEUED, line=LINE),
        (
            "position 4 of 9 in line core.http.get[host=a]; 2 of 2 slots held by executions 812 (worker w1, 40 s)"
            " and 815 (2 s); expected to start in about 25 s"
        ),
    ),
    (
        "in_line",
        facts(Status.QUEUED, line=replace(LINE, limit=None, active=5, completions_per_second=0)),
        (
            "position 4 of 9 in line core.http.get[host=a]; 5 slots held by executions 812 (worker w1, 40 s), 815 (2 s)"
            " and 3 more"
        ),
    ),
    (
        "waiting_for_room",
        facts(Status.SCHEDULING),
        "waits for room on a worker: 2 workers that could run it, 8 of 8 places taken",
    ),
    ("waiting", facts(Status.WAITING), "waits for something that it asked for"),
]


@pytest.mark.parametrize(("code", "given", "sentence"), TOLD, ids=[f"{told[0]}-{told[1].status}" for told in TOLD])
def test_the_sentence_says_what_holds_it(code: str, given: Facts, sentence: str) -> None:
    told = explain(given)
    assert (told.code, told.sentence) == (code, sentence)


def test_every_reason_is_told_by_some_example() -> None:
    assert {reason.code for reason in REASONS} == {told[0] for told in TOLD}


def test_every_state_has_a_reason() -> None:
    assert all(explain(facts(status)).sentence for status in Status)
