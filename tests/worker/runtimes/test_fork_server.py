"""Copies of a warm Python: as apart from each other, and from the server, as if each had been started afresh."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attune.domain.json_values import Json
from attune.domain.retry import Ending, Outcome
from attune.worker.forking.pool import IDLE_SECONDS_MAX, ForkServers
from attune.worker.forking.server import ForkServer, ServerKind
from attune.worker.launcher.order import Walls
from attune.worker.processes import find_marked
from attune.worker.runners.protocol import Stop, StopReason, Stream
from attune.worker.runtimes.python import SYSTEM_PYTHON
from tests.plugins.report import not_run
from tests.witness.machine import Machine, a_machine
from tests.witness.waiting import until
from tests.witness.wheels import make_wheel, offline
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt

CANARY = "canary-5f3a9c"
# Every readable page of the process that runs it, searched for a text that its own memory holds in halves only.
SEARCH = """
import re

def run(first, second, pid="self"):
    wanted = (first + second).encode()
    # Its own request, and what was made of it, is no find.
    first = second = None
    found = 0
    for line in open(f"/proc/{pid}/maps"):
        begin, end, mode = re.match(r"(\\w+)-(\\w+) (\\S+)", line).groups()
        if mode[0] != "r" or "[v" in line:
            continue
        with open(f"/proc/{pid}/mem", "rb", 0) as memory:
            memory.seek(int(begin, 16))
            try:
                found += memory.read(int(end, 16) - int(begin, 16)).count(wanted)
            except OSError:
                continue
    return found
"""


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with a_machine() as made:
        yield made


def write(machine: Machine, name: str, script: str) -> None:
    machine.write(f"actions/{name}", script, digest=NO_DIGEST)


async def run(machine: Machine, entry_point: str, printed: Printed | None = None, **changes: object) -> Ending:
    work = {"runner": "python", "entry_point": entry_point, **changes}
    return await machine.runners["python"].run(make_attempt(None, **work), printed or Printed())


def server_of(machine: Machine) -> ForkServer:
    (server,) = machine.equipment.fork_servers._servers.values()
    return server


async def test_every_execution_is_a_copy_of_one_server(machine: Machine) -> None:
    write(machine, "who.py", "import os\n\ndef run():\n    return [os.getppid(), os.getpid()]\n")
    seen = [(await run(machine, "who.py")).result for _ in range(3)]
    parents = [each[0] for each in seen if isinstance(each, list)]
    assert parents == [server_of(machine).pid] * 3
    assert len({str(each) for each in seen}) == 3


async def test_what_an_action_changes_is_invisible_to_the_next(machine: Machine) -> None:
    script = """
import json, math, os, random, sys, tempfile

def run():
    place = tempfile.gettempdir()
    seen = [math.pi, os.environ.get("LEFT"), hasattr(json, "left"), "left" in sys.path, os.listdir(place)]
    math.pi, os.environ["LEFT"], json.left = 3, "here", True
    sys.path.append("left")
    open(os.path.join(place, "left"), "w").close()
    return [*seen, random.random(), place]
"""
    write(machine, "change.py", script)
    first, second = [(await run(machine, "change.py")).result for _ in range(2)]
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert first[:5] == second[:5] == [pytest.approx(3.14159, abs=0.001), None, False, False, []]
    assert first[6] != second[6], "a temporary directory that was used is nobody else's"
    assert first[5] != second[5], "each draws its own numbers"


async def test_parameters_and_environment_of_one_action_are_not_in_the_memory_of_another(machine: Machine) -> None:
    write(machine, "keep.py", "def run(text):\n    return [text[:5]] * 100\n")
    write(machine, "search.py", SEARCH)
    halves: Json = {"first": CANARY[:6], "second": CANARY[6:]}
    # It finds what it looks for itself, before and after.
    before = await run(machine, "search.py", parameters=halves)
    await run(machine, "keep.py", parameters={"text": CANARY}, traceparent=CANARY)
    after = await run(machine, "search.py", parameters=halves)
    assert isinstance(after.result, int)
    assert before.result == after.result
    seen = await run(machine, "search.py", parameters=halves, traceparent=CANARY)
    assert isinstance(seen.result, int)
    assert seen.result > after.result, "the search would not find it"


async def test_the_server_never_holds_what_an_action_is_given(machine: Machine) -> None:
    write(machine, "keep.py", "def run(text):\n    return 1\n")
    await run(machine, "keep.py", parameters={"text": CANARY}, traceparent=CANARY)
    pid = server_of(machine).pid
    assert CANARY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    assert count_in_memory(pid, CANARY.encode()) == 0


def count_in_memory(pid: int | None, wanted: bytes) -> int:
    found = 0
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                begin, _, end = line.split()[0].partition("-")
                if line.split()[1].startswith("r") and "[v" not in line:
                    memory.seek(int(begin, 16))
                    found += memory.read(int(end, 16) - int(begin, 16)).count(wanted)
    except PermissionError:
        not_run("only root may look into the server's memory", cure="run the tests as root")
    return found


async def test_an_action_cannot_look_into_the_server(machine: Machine) -> None:
    if machine.equipment.scripts.confinement.usual == "none" and os.geteuid() == 0:
        not_run("only root drops to another account, and here it does not", cure="run the tests as root")
    script = "import os\n\ndef run():\n    return open(f'/proc/{os.getppid()}/environ').read()\n"
    write(machine, "look.py", script)
    ending = await run(machine, "look.py")
    assert ending.failure is not None
    assert ending.failure.message.startswith("PermissionError")


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), 9)", "ctypes.string_at(0)", "os._exit(3)"])
async def test_a_crash_reaches_neither_the_server_nor_a_sibling(machine: Machine, end: str) -> None:
    write(machine, "crash.py", f"import ctypes, os\n\ndef run():\n    {end}\n")
    write(
        machine, "wait.py", "import sys\nprint('ready', flush=True)\nwhile True:\n    import time; time.sleep(0.01)\n"
    )
    stop, printed = Stop(), Printed()
    attempt = make_attempt(stop, runner="python", entry_point="wait.py")
    sibling = asyncio.create_task(machine.runners["python"].run(attempt, printed))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready)
    before = server_of(machine).pid
    ending = await run(machine, "crash.py")
    assert ending.outcome is Outcome.FAILED
    assert server_of(machine).pid == before
    assert not sibling.done()
    stop.request(StopReason.CANCELLED)
    assert (await sibling).outcome is Outcome.CANCELLED


async def test_a_killed_server_takes_its_copies_along_and_is_replaced(machine: Machine) -> None:
    write(machine, "wait.py", "import time\nprint('ready', flush=True)\ntime.sleep(300)\n")
    write(machine, "quick.py", "def run():\n    return 1\n")
    printed = Printed()
    waiting = asyncio.create_task(run(machine, "wait.py", printed))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready)
    old = server_of(machine).pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    assert (await waiting).outcome is Outcome.WORKER_LOST
    assert find_marked(machine.marking.prefix) == set()
    assert (await run(machine, "quick.py")).result == 1
    assert server_of(machine).pid != old


async def test_a_server_that_does_not_answer_is_replaced(machine: Machine) -> None:
    write(machine, "quick.py", "def run():\n    return 1\n")
    await run(machine, "quick.py")
    old = server_of(machine).pid
    assert old is not None
    os.kill(old, signal.SIGSTOP)
    machine.equipment.fork_servers.answer_seconds_max = 0.5
    assert (await run(machine, "quick.py")).outcome is Outcome.WORKER_LOST
    machine.equipment.fork_servers.answer_seconds_max = 30
    assert (await run(machine, "quick.py")).result == 1
    assert server_of(machine).pid != old


async def test_what_a_copy_leaves_running_is_found_even_if_it_hides(machine: Machine) -> None:
    script = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(300)
    os._exit(0)
os.wait()
print("done")
"""
    write(machine, "hide.py", script)
    ending = await run(machine, "hide.py")
    assert ending.outcome is Outcome.SUCCEEDED
    assert find_marked(machine.marking.prefix) == set()


async def test_a_worn_server_is_replaced_and_ends_with_its_last_copy(machine: Machine) -> None:
    write(machine, "quick.py", "def run():\n    return 1\n")
    await run(machine, "quick.py")
    old = server_of(machine)
    old.jobs = 1_000_000
    await run(machine, "quick.py")
    assert server_of(machine) is not old

    async def gone() -> bool:
        return not Path(f"/proc/{old.pid}").exists()

    await until(gone)


async def test_an_idle_server_is_let_go(machine: Machine) -> None:
    write(machine, "quick.py", "def run():\n    return 1\n")
    await run(machine, "quick.py")
    server, servers = server_of(machine), machine.equipment.fork_servers
    servers.let_idle_go(server.used_at + IDLE_SECONDS_MAX)
    assert server_of(machine) is server
    servers.let_idle_go(server.used_at + IDLE_SECONDS_MAX + 1)
    assert servers._servers == {}

    async def gone() -> bool:
        return server.gone

    await until(gone)


async def test_beyond_the_bound_the_least_recently_used_server_is_let_go(machine: Machine) -> None:
    scripts = machine.equipment.scripts
    program = machine.equipment.fork_servers._program
    servers = ForkServers(scripts.launcher, scripts.children, program, marker="", servers_max=2)
    kinds = [ServerKind(python=SYSTEM_PYTHON, account=None, preload=(name,)) for name in ("json", "csv", "uuid")]
    try:
        for kind in (*kinds[:2], kinds[0], kinds[2]):
            await servers.prepare(kind, Walls())
        assert list(servers._servers) == [kinds[0], kinds[2]]
    finally:
        await servers.close()


async def test_a_server_that_cannot_start_leaves_actions_cold(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(300,), daemon=True).start()\n"
    lock = make_wheel(wheels, "restless", "1.0", {"restless.py": thread})
    async with a_machine(offline(wheels)) as machine:
        machine.write("requirements.lock", lock, digest=NO_DIGEST)
        machine.write("pack.yaml", "ref: demo\nversion: 1.0.0\npython: {preload: [restless]}\n", digest=NO_DIGEST)
        write(machine, "who.py", "import os\n\ndef run():\n    return os.getppid()\n")
        ending = await run(machine, "who.py")
        assert ending.result == machine.equipment.scripts.launcher.pid


async def test_what_a_pack_declares_is_loaded_before_its_actions(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    lock = make_wheel(wheels, "heavy", "1.0", {"heavy.py": "import os\nLOADED_BY = os.getpid()\n"})
    async with a_machine(offline(wheels)) as machine:
        machine.write("requirements.lock", lock, digest=NO_DIGEST)
        machine.write("pack.yaml", "ref: demo\nversion: 1.0.0\npython: {preload: [heavy]}\n", digest=NO_DIGEST)
        write(machine, "who.py", "import heavy\n\ndef run():\n    return heavy.LOADED_BY\n")
        ending = await run(machine, "who.py")
        assert ending.result == server_of(machine).pid


async def test_a_pack_may_refuse_to_be_copied(machine: Machine) -> None:
    write(machine, "who.py", "import os\n\ndef run():\n    return os.getppid()\n")
    machine.write("pack.yaml", "ref: demo\nversion: 1.0.0\npython: {fork_server: false}\n", digest=NO_DIGEST)
    ending = await run(machine, "who.py")
    assert ending.result == machine.equipment.scripts.launcher.pid
    assert machine.equipment.fork_servers._servers == {}


async def test_a_copy_behind_stronger_walls_sees_only_itself(machine: Machine) -> None:
    if "namespace" not in machine.equipment.scripts.confinement.walls:
        not_run("namespaces do not work here", cure="allow unprivileged user namespaces")
    write(machine, "look.py", "import os\n\ndef run():\n    return [x for x in os.listdir('/proc') if x.isdigit()]\n")
    await run(machine, "look.py")
    ending = await run(machine, "look.py", isolation="namespace")
    assert ending.result == ["1", "2"], ending
    assert server_of(machine).divides is not None
