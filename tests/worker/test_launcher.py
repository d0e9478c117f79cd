"""What is started through the launcher: bound to its life, told apart by its end, and shut in as asked."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

from attune.domain.retry import Outcome
from attune.worker.launcher import client, server
from attune.worker.launcher.child import LauncherLost
from attune.worker.launcher.client import Launcher
from attune.worker.launcher.order import Order, OrderTooLarge, Walls
from attune.worker.processes import MARKER_VARIABLE, Children, Marking, find_marked
from attune.worker.runners.protocol import Stream
from attune.worker.runners.script import ScriptRunner
from tests.witness.waiting import until
from tests.worker.attempts import Printed, make_attempt

SECONDS_MAX = 60.0
SERVER_FOLDER = Path(client.__file__).parent


@pytest.fixture(params=[[], [client.FORKING]], ids=["quick", "forking"])
def launcher_flags(request: pytest.FixtureRequest) -> list[str]:
    """Both ways of starting a command keep the same promises."""
    flags: list[str] = request.param
    return flags


def order(*words: str, directory: Path = Path("/"), walls: Walls | None = None) -> Order:
    return Order(words=words, environment={"PATH": "/usr/bin:/bin"}, directory=directory, walls=walls or Walls())


def shell_order(text: str, **more: object) -> Order:
    return order("/bin/sh", "-c", text, **more)  # type: ignore[arg-type]  # as `order` takes them


async def test_a_command_that_is_not_there_says_so(launcher: Launcher) -> None:
    with pytest.raises(FileNotFoundError, match="cannot be started"):
        await launcher.probe(order("/no/such/command"), seconds_max=SECONDS_MAX)


async def test_a_directory_that_cannot_be_entered_says_so(launcher: Launcher) -> None:
    with pytest.raises(FileNotFoundError, match="cannot enter its directory"):
        await launcher.probe(order("/bin/true", directory=Path("/no/such")), seconds_max=SECONDS_MAX)


async def test_an_end_is_told_as_it_was(launcher: Launcher) -> None:
    assert (await launcher.probe(shell_order("exit 7"), seconds_max=SECONDS_MAX)).exit_code == 7
    assert (await launcher.probe(shell_order("kill -KILL $$"), seconds_max=SECONDS_MAX)).exit_code == -signal.SIGKILL


# 32 and 33: nobody else can change them, and make ignores them for what it starts.
OF_THE_C_LIBRARY = 0b11 << 31


async def test_a_command_begins_with_the_usual_signals_and_in_a_session_of_its_own(launcher: Launcher) -> None:
    shown = await launcher.probe(
        shell_order("grep -E 'SigIgn|SigBlk' /proc/self/status; ps -o sid= $$; echo $$"), seconds_max=SECONDS_MAX
    )
    blocked, ignored, session, own = shown.stdout.splitlines()
    assert int(blocked.split()[1], 16) == int(ignored.split()[1], 16) & ~OF_THE_C_LIBRARY == 0
    assert session.strip() == own


async def test_what_a_command_reads_cannot_be_changed_and_need_not_be_read(launcher: Launcher) -> None:
    child = await launcher.spawn(shell_order("echo more >&0 || cat"), stdin=b"given")
    await child.exited
    assert await child.stdout.read(100) == b"given"
    child.close()


async def test_a_command_larger_than_a_request_is_refused(launcher: Launcher) -> None:
    with pytest.raises(OrderTooLarge):
        await launcher.spawn(order("/bin/echo", "x" * 200_000))


async def test_many_at_once_each_have_their_own_end(launcher: Launcher) -> None:
    ends = await asyncio.gather(
        *(launcher.probe(shell_order(f"exit {number}"), seconds_max=60) for number in range(100))
    )
    assert [end.exit_code for end in ends] == list(range(100))


async def test_what_nobody_waits_for_any_more_is_ended(launcher: Launcher, tmp_path: Path) -> None:
    os.kill(launcher.pid or 0, signal.SIGSTOP)
    asking = asyncio.create_task(launcher.spawn(shell_order(f"sleep 0.2; touch {tmp_path}/late; sleep 300")))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    os.kill(launcher.pid or 0, signal.SIGCONT)
    # Answered after the first one, so that one was dealt with.
    await launcher.probe(shell_order("sleep 0.5"), seconds_max=SECONDS_MAX)
    assert not (tmp_path / "late").exists()


async def test_limits_hold_and_can_only_be_lowered(launcher: Launcher) -> None:
    limits = {resource.RLIMIT_NOFILE: 99, resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: 2**40}
    shown = await launcher.probe(
        shell_order("ulimit -n; ulimit -Hn; ulimit -n 100", walls=Walls(limits=limits)), seconds_max=SECONDS_MAX
    )
    assert shown.stdout.split() == ["99", "99"]
    assert shown.exit_code != 0


PROGRAM = """
import os, socket, sys
sys.path.insert(0, sys.argv[3])
import server

def enter(request):
    server.stay(request)
    print(os.environ, sorted(os.listdir("/proc/self/fd")), os.getcwd(), sys.stdin.read(), flush=True)
    sys.stdin.close()
    with open("/proc/self/environ") as file:
        print(file.read().strip(chr(0)), flush=True)
    os._exit(5)

server.serve(socket.socket(fileno=int(sys.argv[1])), parent=int(sys.argv[2]), enter=enter)
"""


async def test_a_child_may_stay_in_the_program_and_is_marked_all_the_same(
    children: Children, tmp_path: Path, marking: Marking
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    forking = Launcher(children, program=tmp_path / "program.py", flags=[str(SERVER_FOLDER)])
    forking.start()
    try:
        mark = marking.marker(7, 1)
        asked = Order(words=["unused"], environment={MARKER_VARIABLE: mark}, directory=tmp_path)
        child = await forking.spawn(asked, stdin=b"given")
        await child.exited
        said = (await child.stdout.read(10_000)).decode()
        child.close()
    finally:
        forking.stop()
    assert child.exit_code == 5, said
    first, *environment = said.splitlines()
    # 3 is the directory that is being listed.
    assert first == f"environ({{'{MARKER_VARIABLE}': '{mark}'}}) ['0', '1', '2', '3'] {tmp_path} given"
    assert f"{MARKER_VARIABLE}={mark}" in "".join(environment).split(chr(0))


def test_the_launcher_and_the_worker_mean_the_same_mark() -> None:
    assert server.MARK.decode() == f"{MARKER_VARIABLE}="


async def test_when_the_launcher_is_killed_all_it_started_ends_and_another_takes_its_place(
    launcher: Launcher, shell: ScriptRunner, marking: Marking
) -> None:
    printed = Printed()
    work = make_attempt(None, command="sleep 300 & setsid sleep 300 & echo ready; sleep 300")
    running = asyncio.create_task(shell.run(work, printed))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready)
    first = launcher.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    ending = await asyncio.wait_for(running, 30)

    assert ending.outcome is Outcome.WORKER_LOST
    assert ending.failure is not None
    assert ending.failure.code == "launcher_lost"
    assert find_marked(marking.prefix) == set()
    assert (await launcher.probe(order("/bin/true"), seconds_max=SECONDS_MAX)).exit_code == 0
    assert launcher.pid != first


async def test_a_request_that_the_launcher_took_with_it_is_lost(launcher: Launcher) -> None:
    os.kill(launcher.pid or 0, signal.SIGSTOP)
    asking = asyncio.create_task(launcher.spawn(order("/bin/true")))
    await asyncio.sleep(0)
    os.kill(launcher.pid or 0, signal.SIGKILL)
    with pytest.raises(LauncherLost):
        await asyncio.wait_for(asking, 30)
