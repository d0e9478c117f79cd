"""A whole platform for one test, driven only from outside: the command line, HTTP, and signals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[2]
# Heartbeats and sweeps as fast as a test wants them.
QUICK = {
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1",
    "ATTUNE__EXECUTOR__TIMEOUT_CHECK_INTERVAL": "1",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "30",
    "ATTUNE__WORKER__ISOLATION": "none",
    # A worker that was killed for a test shall have the time to come back on a busy machine.
    "ATTUNE__EXECUTOR__NO_WORKER_GRACE_SECONDS": "60",
}
COMMAND_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> object:
        """Its standard output as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """One running platform and the ways to reach it."""

    home: Path
    port: int
    environment: Mapping[str, str] = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def run(self, *arguments: str, check: bool = True) -> Answer:
        """Run one command of the CLI."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "attune.cli.main",
            *arguments,
            env=dict(self.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(COMMAND_SECONDS):
            out, err = await process.communicate()
        answer = Answer(code=process.returncode or 0, out=out.decode(), err=err.decode())
        if check:
            assert answer.code == 0, f"attune {' '.join(arguments)} → {answer.code}\n{answer.out}\n{answer.err}"
        return answer

    async def processes(self) -> dict[str, int]:
        """The process ids of every running process, by name."""
        status = (await self.run("status", "-o", "json", check=False)).document
        assert isinstance(status, dict)
        return {each["name"]: each["pid"] for each in status["processes"] if each["pid"]}

    async def kill(self, name: str) -> int | None:
        """SIGKILL one process by its name; returns its id, or None if it was just not there."""
        pid = (await self.processes()).get(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid

    async def is_back(self, name: str, old: int | None) -> bool:
        """Whether a process of this name runs that is not the old one."""
        now = (await self.processes()).get(name)
        return now is not None and now != old

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """HTTP as the administrator."""
        token = (await self.run("token", "create", "--name", "test", "-o", "value")).out.strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30) as client:
            yield client


@asynccontextmanager
async def running_platform(
    *, options: Sequence[str] = (), settings: Mapping[str, str] | None = None, dies_first: bool = False
) -> AsyncIterator[Platform]:
    """A platform in a home of its own, on a free port; nothing of it is left afterwards.

    One that `dies_first` is killed by a failpoint before it is ready, and started again where it left off.
    """
    home = Path(tempfile.mkdtemp(prefix="attune-home-"))
    # The account that PostgreSQL runs as under root must be able to come in.
    home.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ATTUNE_HOME": str(home),
        "LANG": "C.UTF-8",
        **QUICK,
        **(settings or {}),
    }
    platform = Platform(home=home, port=free_port(), environment=environment)
    command = ("up", "--detach", "--port", str(platform.port), *options)
    try:
        if dies_first:
            assert (await platform.run(*command, check=False)).code != 0
        await platform.run(*command)
        yield platform
    finally:
        try:
            await platform.run("down")
        finally:
            shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
