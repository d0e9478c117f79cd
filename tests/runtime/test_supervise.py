"""What is promised about a service's tasks: no crash goes unnoticed, and signals stop it."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from attune.runtime.supervise import Restart, Run, TaskCrashed, Tasks

START = """
import asyncio, sys
from attune.runtime.logs import configure_logs
from attune.runtime.supervise import CannotStart, Restart, run_service
configure_logs('test')
def say(word): print(word, flush=True)
async def forever():
    try:
        say('running')
        await asyncio.Event().wait()
    finally:
        say('cleaned')
"""


@contextmanager
def service(body: str, options: str = "") -> Iterator["subprocess.Popen[str]"]:
    """Run a service whose main is the given body; killed at the end if it still lives."""
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    code = f"{START}\nasync def main(tasks):\n{indented}\nsys.exit(run_service(main, {options}))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: "subprocess.Popen[str]") -> tuple[int, list[str], list[dict[str, object]]]:
    """Exit code, words said, and lines logged."""
    out, err = process.communicate(timeout=30)
    return process.returncode, out.split(), [json.loads(line) for line in err.splitlines()]


def wait_for(process: "subprocess.Popen[str]", word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


def test_a_main_that_returns_ends_its_tasks_and_exits_well() -> None:
    with service("tasks.start('loop', forever)\nawait asyncio.sleep(0)") as process:
        assert ended(process) == (0, ["running", "cleaned"], [])


@pytest.mark.parametrize("loop", ["", "loop_factory=__import__('uvloop').new_event_loop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_to_stop(number: signal.Signals, loop: str) -> None:
    with service("tasks.start('loop', forever)\nawait tasks.stop.wait()\nsay('draining')", loop) as process:
        wait_for(process, "running")
        process.send_signal(number)
        code, words, lines = ended(process)

    assert (code, words) == (0, ["draining", "cleaned"])
    assert [(line["event"], line["signal"]) for line in lines] == [("service.stopping", number.name)]


def test_the_second_signal_forces() -> None:
    body = "tasks.start('loop', forever)\nawait tasks.stop.wait()\nsay('draining')\nawait asyncio.Event().wait()"
    with service(body) as process:
        wait_for(process, "running")
        process.terminate()
        wait_for(process, "draining")
        process.terminate()
        code, words, lines = ended(process)

    assert (code, words) == (128 + signal.SIGTERM, ["cleaned"])
    assert [line["event"] for line in lines] == ["service.stopping", "service.forced"]


def test_a_service_that_ignores_being_forced_is_left_at_once() -> None:
    body = (
        "await tasks.stop.wait()\nsay('draining')\n"
        "while True:\n    try: await asyncio.Event().wait()\n    except asyncio.CancelledError: say('no')"
    )
    with service(f"say('running')\n{body}", "forced_exit_seconds=0.1") as process:
        wait_for(process, "running")
        process.terminate()
        wait_for(process, "draining")
        process.terminate()
        code, words, _ = ended(process)

    assert (code, words) == (128 + signal.SIGTERM, ["no"])


def test_a_crash_ends_the_service_and_is_logged_once() -> None:
    bad = "async def bad(): raise KeyError('x')\n"
    body = f"{bad}tasks.start('loop', forever)\ntasks.start('bad', bad)\nawait tasks.stop.wait()"
    with service(body) as process:
        code, words, lines = ended(process)

    assert (code, words) == (1, ["running", "cleaned"])
    assert [(line["event"], line["task"]) for line in lines] == [("task.crashed", "bad")]
    assert "KeyError: 'x'" in str(lines[0]["exception"])


def test_a_crash_of_main_ends_the_service_and_is_logged_once() -> None:
    with service("raise KeyError('x')") as process:
        code, _, lines = ended(process)

    assert code == 1
    assert [line["event"] for line in lines] == ["service.crashed"]


def test_what_an_operator_can_mend_is_told_without_a_traceback() -> None:
    nested = "async def bind(): raise CannotStart('port 8080 is in use')\nasync with asyncio.TaskGroup() as inner:"
    with service(f"{nested}\n    inner.create_task(bind())") as process:
        code, _, lines = ended(process)

    assert code == 1
    assert [(line["event"], line["reason"]) for line in lines] == [("service.cannot_start", "port 8080 is in use")]
    assert "exception" not in lines[0]


async def crash_of(run: Run, restart: Restart | None = None) -> BaseException | None:
    """Start one task, wait until it crashes, and give the cause."""
    causes: list[BaseException | None] = []
    try:
        async with asyncio.timeout(10), Tasks() as tasks:
            tasks.start("loop", run, restart=restart)
            await asyncio.Event().wait()
    except* TaskCrashed as group:
        causes = [error.__cause__ for error in group.exceptions]
    (cause,) = causes
    return cause


async def test_a_task_that_ends_unasked_counts_as_a_crash() -> None:
    async def leave() -> None:
        return

    assert "ended although nobody asked" in str(await crash_of(leave))


async def test_a_task_ended_by_a_stray_cancellation_counts_as_a_crash() -> None:
    async def stray() -> None:
        raise asyncio.CancelledError

    assert "cancellation nobody asked for" in str(await crash_of(stray))


async def test_a_task_may_be_declared_to_end() -> None:
    async def leave() -> None:
        return

    async with asyncio.timeout(10), Tasks() as tasks:
        await tasks.start("once", leave, may_end=True)


async def test_a_restartable_task_is_started_again_until_it_works() -> None:
    tries: list[int] = []
    works = asyncio.Event()

    async def flaky() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise ConnectionError
        works.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(10), Tasks() as tasks:
        tasks.start("flaky", flaky, restart=Restart(first_seconds=0.001, ceiling_seconds=0.002))
        await works.wait()

    assert len(tries) == 4


async def test_a_task_that_only_ever_crashes_ends_the_service_at_the_limit() -> None:
    tries: list[int] = []

    async def hopeless() -> None:
        tries.append(1)
        raise ConnectionError

    restart = Restart(first_seconds=0.001, ceiling_seconds=0.001, crashes_max=5)

    assert isinstance(await crash_of(hopeless, restart), ConnectionError)
    assert len(tries) == 5


async def test_leaving_the_block_waits_until_every_task_has_cleaned_up() -> None:
    said: list[str] = []

    async def careful(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            said.append(name)

    async with asyncio.timeout(10), Tasks() as tasks:
        tasks.start("a", lambda: careful("a"))
        tasks.start("b", lambda: careful("b"), restart=Restart())
        await asyncio.sleep(0)

    assert sorted(said) == ["a", "b"]
