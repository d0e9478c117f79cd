"""Every runner keeps the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from attune.domain.retry import Ending, Outcome
from attune.worker.processes import Marking, find_marked
from attune.worker.runners.native import NativeRunner
from attune.worker.runners.protocol import Attempt, Runner, Stop, StopReason, TooLate
from attune.worker.runners.script import ScriptRunner
from tests.worker.attempts import Printed, make_attempt

MEBIBYTE = 1024 * 1024
Work = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A runner, and for each kind of ending some work that comes to it."""

    runner: Runner
    succeeding: Work
    failing: Work
    endless: Work
    missing: Work
    unpromised: Work
    oversized: Work


@pytest.fixture(params=["native", "shell"])
def subject(request: pytest.FixtureRequest, native: NativeRunner, shell: ScriptRunner) -> Subject:
    promise = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    if request.param == "native":
        return Subject(
            runner=native,
            succeeding={"entry_point": "echo", "parameters": {"message": "hi"}},
            failing={"entry_point": "fail", "parameters": {"message": "no"}},
            endless={"entry_point": "sleep", "parameters": {"seconds": 300}},
            missing={"entry_point": "nowhere"},
            unpromised={"entry_point": "echo", "output_schema": promise},
            oversized={"entry_point": "set", "parameters": {"values": {"long": "x" * 2 * MEBIBYTE}}},
        )
    return Subject(
        runner=shell,
        succeeding={"command": "true"},
        failing={"command": "exit 1"},
        endless={"command": "sleep 300"},
        missing={"entry_point": "nowhere.sh"},
        unpromised={"command": 'echo "{}"', "output_format": "json", "output_schema": promise},
        oversized={
            "command": "printf '\"'; head -c 2097152 /dev/zero | tr \"\\0\" x; printf '\"'",
            "output_format": "json",
        },
    )


async def run(subject: Subject, work: Work, stop: Stop | None = None) -> Ending:
    async with asyncio.timeout(30):
        return await subject.runner.run(make_attempt(stop, **work), Printed())


def code(ending: Ending) -> str | None:
    return ending.failure.code if ending.failure else None


async def test_work_that_succeeds_ends_as_success(subject: Subject) -> None:
    ending = await run(subject, subject.succeeding)
    assert (ending.outcome, ending.failure) == (Outcome.SUCCEEDED, None)
    assert ending.result is not None


async def test_work_that_fails_says_who_noticed(subject: Subject) -> None:
    ending = await run(subject, subject.failing)
    assert ending.outcome is Outcome.FAILED
    assert ending.failure is not None
    assert ending.failure.by == "worker-1"


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (StopReason.CANCELLED, Outcome.CANCELLED),
        (StopReason.TIMEOUT, Outcome.TIMEOUT),
        (StopReason.SHUTDOWN, Outcome.WORKER_LOST),
        (StopReason.LEASE_LOST, Outcome.WORKER_LOST),
    ],
)
async def test_work_that_is_stopped_ends_by_the_reason(
    subject: Subject, marking: Marking, reason: StopReason, outcome: Outcome
) -> None:
    stop = Stop()
    running = asyncio.create_task(run(subject, subject.endless, stop))
    await asyncio.sleep(0)
    stop.request(reason)
    ending = await running
    assert (ending.outcome, code(ending)) == (outcome, str(reason))
    assert find_marked(marking.prefix) == set()


async def test_work_that_was_stopped_before_it_began_never_begins(subject: Subject) -> None:
    stop = Stop()
    stop.request(StopReason.CANCELLED)
    ending = await run(subject, subject.endless, stop)
    assert ending.outcome is Outcome.CANCELLED


async def test_work_whose_lease_may_be_over_never_begins(subject: Subject, marking: Marking) -> None:
    def too_late() -> None:
        raise TooLate

    attempt = make_attempt(None, **subject.endless)
    late = Attempt(work=attempt.work, stop=attempt.stop, worker=attempt.worker, check_clock=too_late)
    with pytest.raises(TooLate):
        await subject.runner.run(late, Printed())
    assert find_marked(marking.prefix) == set()


async def test_work_that_does_not_exist_fails_with_its_name(subject: Subject) -> None:
    ending = await run(subject, subject.missing)
    assert code(ending) == "missing_entry_point"
    assert ending.failure is not None
    assert "nowhere" in ending.failure.message


async def test_a_result_that_breaks_the_promise_fails(subject: Subject) -> None:
    ending = await run(subject, subject.unpromised)
    assert (ending.outcome, code(ending)) == (Outcome.FAILED, "bad_output")
    assert ending.failure is not None
    assert "'n'" in ending.failure.message


async def test_a_result_that_is_too_large_fails(subject: Subject) -> None:
    ending = await run(subject, subject.oversized)
    assert (ending.outcome, code(ending)) == (Outcome.FAILED, "output_too_large")


async def test_an_urgent_reason_overrides_a_patient_one(subject: Subject) -> None:
    stop = Stop()
    work = (
        {**subject.endless, "command": "trap '' TERM; sleep 300"} if "command" in subject.endless else subject.endless
    )
    running = asyncio.create_task(run(subject, work, stop))
    await asyncio.sleep(0)
    stop.request(StopReason.CANCELLED)
    stop.request(StopReason.TIMEOUT)
    stop.request(StopReason.LEASE_LOST)
    assert code(await running) == "lease_lost"
