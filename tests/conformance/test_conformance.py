"""Every runtime keeps the same promises, whatever it runs."""

from __future__ import annotations

import asyncio
import copy
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from attune.domain.json_values import BYTES_MAX
from attune.domain.retry import Ending, Outcome
from attune.domain.secrecy.masking import Masker
from attune.storage.assignments import Held
from attune.storage.output.execution_logs import Chunk
from attune.worker.environments.python import PythonEnvironments
from attune.worker.output import AttemptOutput, WriteChunks
from attune.worker.processes import find_marked
from attune.worker.runners.container import ContainerRunner
from attune.worker.runners.node import NodeLanguage
from attune.worker.runners.protocol import Runner, Stop, StopReason, Stream, TooLate
from attune.worker.runners.python import PythonLanguage
from attune.worker.runners.script import ScriptRunner
from attune.worker.runtimes.ask import NotOffered
from attune.worker.secrecy import mask_ending
from tests.conformance.conftest import Stage
from tests.conformance.subjects import HUGE_BYTES, MEBIBYTE
from tests.witness.waiting import until
from tests.worker.attempts import Printed

NOWHERE = Path("/no/such/interpreter")
SECRET = "correct-horse-battery"


def code(ending: Ending) -> str | None:
    return ending.failure.code if ending.failure else None


@pytest.mark.case("success")
async def test_work_that_succeeds_ends_as_success(stage: Stage) -> None:
    ending = await stage.run(stage.subject.success)
    assert (ending.outcome, ending.failure) == (Outcome.SUCCEEDED, None)
    assert ending.result is not None


@pytest.mark.case("failure")
async def test_work_that_fails_says_who_noticed(stage: Stage) -> None:
    ending = await stage.run(stage.subject.failure)
    assert ending.outcome is Outcome.FAILED
    assert ending.failure is not None
    assert ending.failure.by == "worker-1"


async def stop_when_ready(stage: Stage, *reasons: StopReason) -> Ending:
    """Stop what runs for ever as soon as it really runs, and see that nothing of it is left."""
    stop, printed = Stop(), Printed()
    running = asyncio.create_task(stage.run(stage.subject.endless, printed, stop))

    async def ready() -> bool:
        return not stage.subject.prints or b"ready" in printed.content[Stream.STDOUT]

    await until(ready)
    for reason in reasons:
        stop.request(reason)
    ending = await running
    assert find_marked(stage.machine.marking.prefix) == set()
    if engine := stage.machine.equipment.engine:
        assert (await engine.call("ps", "--all", "--quiet")).stdout == ""
    return ending


@pytest.mark.case("timeout")
async def test_work_that_takes_too_long_is_ended(stage: Stage) -> None:
    ending = await stop_when_ready(stage, StopReason.TIMEOUT)
    assert (ending.outcome, code(ending)) == (Outcome.TIMEOUT, "timeout")


@pytest.mark.case("cancel")
async def test_work_that_is_cancelled_is_ended(stage: Stage) -> None:
    ending = await stop_when_ready(stage, StopReason.CANCELLED)
    assert (ending.outcome, code(ending)) == (Outcome.CANCELLED, "cancelled")


@pytest.mark.parametrize("reason", [StopReason.SHUTDOWN, StopReason.LEASE_LOST])
async def test_work_whose_worker_gives_up_may_be_tried_elsewhere(stage: Stage, reason: StopReason) -> None:
    ending = await stop_when_ready(stage, reason)
    assert (ending.outcome, code(ending)) == (Outcome.WORKER_LOST, str(reason))


async def test_an_urgent_reason_overrides_a_patient_one(stage: Stage) -> None:
    ending = await stop_when_ready(stage, StopReason.CANCELLED, StopReason.TIMEOUT, StopReason.LEASE_LOST)
    assert code(ending) == "lease_lost"


@pytest.mark.case("huge output")
async def test_whatever_is_printed_is_drained(stage: Stage) -> None:
    if stage.subject.huge is None:
        return
    printed = Printed()
    ending = await stage.run(stage.subject.huge, printed)
    if not stage.subject.prints:
        # What is not printed would have to become the result.
        assert (ending.outcome, code(ending)) == (Outcome.FAILED, "http_too_large")
        return
    assert ending.outcome is Outcome.SUCCEEDED
    assert len(printed.content[Stream.STDOUT]) == HUGE_BYTES
    # Podman may have a word of its own to say.
    assert printed.content[Stream.STDERR].count(b"\0") == MEBIBYTE


@pytest.mark.case("bad output")
async def test_output_that_is_no_result_fails(stage: Stage) -> None:
    ending = await stage.run(stage.subject.bad)
    assert (ending.outcome, code(ending)) == (Outcome.FAILED, "bad_output")


@pytest.mark.case("missing interpreter")
async def test_an_interpreter_that_is_not_there_is_named(stage: Stage) -> None:
    if stage.subject.no_interpreter is None:
        return
    ending = await interpreterless(stage.runner).run(stage.attempt(stage.subject.no_interpreter), Printed())
    assert (ending.outcome, code(ending)) == (Outcome.FAILED, "missing_interpreter")
    assert ending.failure is not None
    assert "/no/such" in ending.failure.message


def without(python: PythonEnvironments | NotOffered) -> PythonEnvironments:
    assert isinstance(python, PythonEnvironments)
    return replace(python, interpreter=replace(python.interpreter, path=NOWHERE))


def interpreterless(runner: Runner) -> Runner:
    """The same runner on a machine whose interpreter went away after it was found; an image never had it."""
    if isinstance(runner, ContainerRunner):
        return runner
    assert isinstance(runner, ScriptRunner)
    language = copy.copy(runner.language)
    if isinstance(language, PythonLanguage):
        language.pythons = {account: without(python) for account, python in language.pythons.items()}
    elif isinstance(language, NodeLanguage):
        language.node = replace(language.node, path=NOWHERE)
    return ScriptRunner(runner.plan, language)


@pytest.mark.case("non-UTF-8")
async def test_what_is_not_utf8_is_replaced_in_the_result_and_kept_in_the_stream(stage: Stage) -> None:
    if stage.subject.not_utf8 is None:
        return
    printed = Printed()
    ending = await stage.run(stage.subject.not_utf8, printed)
    assert isinstance(ending.result, dict)
    if not stage.subject.prints:
        assert (ending.result["base64"], ending.result["body"]) == (True, b64encode(b"a\xffb").decode())
        return
    assert printed.content[Stream.STDOUT] == b"a\xffb"
    assert ending.result["stdout"] == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.case("secret in output")
async def test_a_secret_that_is_printed_is_masked(stage: Stage) -> None:
    if stage.subject.secret is None:
        return
    masker = Masker([SECRET])
    attempt = replace(stage.attempt({**stage.subject.secret, "parameters": {"password": SECRET}}), masker=masker)
    kept: list[Chunk] = []
    output = AttemptOutput(Held(execution_id=7, attempt=1, lease=uuid4()), write_chunks=keep_in(kept))
    output.masker = masker
    ending = mask_ending(masker, await stage.runner.run(attempt, output))
    kept += await output.close()
    assert ending.outcome is Outcome.SUCCEEDED
    printed = "".join(chunk.content for chunk in kept)
    assert "password" in (printed if stage.subject.prints else str(ending.result))
    assert SECRET not in f"{printed} {ending}"


def keep_in(kept: list[Chunk]) -> WriteChunks:
    async def keep(chunks: Sequence[Chunk]) -> None:
        kept.extend(chunks)

    return keep


async def test_work_that_was_stopped_before_it_began_never_begins(stage: Stage) -> None:
    stop = Stop()
    stop.request(StopReason.CANCELLED)
    ending = await stage.run(stage.subject.endless, None, stop)
    assert ending.outcome is Outcome.CANCELLED


async def test_work_whose_lease_may_be_over_never_begins(stage: Stage) -> None:
    def too_late() -> None:
        raise TooLate

    late = replace(stage.attempt(stage.subject.endless), check_clock=too_late)
    with pytest.raises(TooLate):
        await stage.runner.run(late, Printed())
    assert find_marked(stage.machine.marking.prefix) == set()


async def test_work_that_does_not_exist_fails_with_its_name(stage: Stage) -> None:
    if stage.subject.nowhere is None:
        return
    ending = await stage.run(stage.subject.nowhere)
    assert code(ending) == "missing_entry_point"
    assert ending.failure is not None
    assert "nowhere" in ending.failure.message


async def test_a_result_that_breaks_the_promise_fails(stage: Stage) -> None:
    ending = await stage.run(stage.subject.unpromised)
    assert (ending.outcome, code(ending)) == (Outcome.FAILED, "bad_output")
    assert ending.failure is not None
    assert "'n'" in ending.failure.message


async def test_a_result_that_is_too_large_for_a_row_is_handed_on_as_a_whole(stage: Stage) -> None:
    ending = await stage.run(stage.subject.oversized)
    assert (ending.outcome, ending.result) == (Outcome.SUCCEEDED, None)
    assert ending.large is not None
    assert len(ending.large.content) > BYTES_MAX
    assert msgspec.json.decode(ending.large.content)


async def test_a_result_that_is_larger_than_an_artifact_may_be_fails(stage: Stage) -> None:
    attempt = replace(stage.attempt(stage.subject.oversized), artifact_bytes_max=BYTES_MAX)
    async with asyncio.timeout(30):
        ending = await stage.runner.run(attempt, Printed())
    assert (ending.outcome, code(ending), ending.large) == (Outcome.FAILED, "output_too_large", None)
