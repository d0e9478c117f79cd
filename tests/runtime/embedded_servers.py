"""Places, programs and scenarios for the tests of the embedded PostgreSQL.

Run as a program, it plays one scenario in a process of its own, if asked as another account.
"""

import asyncio
import codecs
import concurrent.futures.thread  # noqa: F401  # loaded lazily otherwise, when its file is out of reach
import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import psutil
import uvloop

from attune.runtime.postgres_server import PostgresServer, ServerError, ServerPlan
from attune.runtime.postgres_server.binaries import find_binaries

PASSWORD = "käse/with:odd@signs &="
DEADLINE_SECONDS = 20.0
LAZY_ENCODINGS = ("ascii", "idna", "latin-1")
IS_ROOT = os.geteuid() == 0
SOURCES = Path(__file__).parents[2] / "src"


@contextlib.contextmanager
def make_place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="attune-test-"))
    made.chmod(0o711)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def plan_in(home: Path, **changes: object) -> ServerPlan:
    plan = ServerPlan(home=home, data=home / "data", log=home / "postgres.log", password=PASSWORD, durable=False)
    return replace(plan, **changes)  # type: ignore[arg-type]  # the names of a plan's fields


def hand_over(path: Path, account: str) -> None:
    if IS_ROOT:
        shutil.chown(path, account, pwd.getpwnam(account).pw_gid)


@contextlib.contextmanager
def another_program(*, uid: int) -> Iterator[int]:
    """A program that is no PostgreSQL, but runs under its account."""
    program = subprocess.Popen(["/bin/sleep", "60"], user=uid if IS_ROOT else None)
    try:
        yield program.pid
    finally:
        program.kill()
        program.wait()


def ended_process() -> int:
    program = subprocess.Popen(["/bin/true"])
    program.wait()
    return program.pid


async def connect(server: PostgresServer) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(server.url)


async def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def start_and_tell(home: Path) -> None:
    """Print who serves, from where, and that it answers."""
    server = PostgresServer(plan_in(home))
    await server.start()
    try:
        assert server.pid is not None
        process = psutil.Process(server.pid)
        connection = await connect(server)
        print(process.username(), process.exe(), await connection.fetchval("SELECT 'answers'"))  # noqa: T201  the parent reads it
        await connection.close()
    finally:
        await server.stop()


async def start_and_complain(home: Path) -> None:
    """Print why it cannot start."""
    try:
        await PostgresServer(plan_in(home)).start()
    except ServerError as error:
        print(error)  # noqa: T201  the parent reads it


def begin(scenario: str, home: Path, *, account: str = "", library: Path | None = None) -> subprocess.Popen[str]:
    """In a session of its own, so that its children can be killed with it."""
    paths = [str(SOURCES), *([str(library)] if library else []), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-B", __file__, scenario, str(home), account],
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PATH": os.defpath},
        start_new_session=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tell(scenario: str, home: Path, *, account: str = "", library: Path | None = None) -> str:
    with begin(scenario, home, account=account, library=library) as process:
        said, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained
    return said


def run_scenario(name: str, home: Path, account: str) -> None:
    """In the new process. The account changes after all imports: it may be unable to reach this Python."""
    if account and IS_ROOT:
        for encoding in LAZY_ENCODINGS:
            codecs.lookup(encoding)
        find_binaries(None)
        entry = pwd.getpwnam(account)
        os.setgroups([])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    if name == "start_and_complain":
        asyncio.run(start_and_complain(home))
    elif name == "start_and_tell_in_uvloop":
        uvloop.run(start_and_tell(home))
    else:
        asyncio.run(start_and_tell(home))


if __name__ == "__main__":
    run_scenario(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
