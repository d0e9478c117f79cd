"""A platform that lives only while something is measured: a home of its own, a free port, nothing left afterwards.

Whatever is set for the platform of the person who measures, its home, its database, its address, does not reach it.
"""

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from attune.cli.bench.wire import WireClient
from attune.cli.exits import CommandFailed
from attune.cli.platform.control import Request, ask
from attune.cli.platform.services import attune_command
from attune.client import AsyncAttuneClient
from attune.runtime.home import Home, read_secret
from attune.storage.database import Database
from attune.storage.upkeep.yardstick import count_executors

SCALE_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.05


class _Process(msgspec.Struct, frozen=True):
    name: str
    pid: int | None


class _Status(msgspec.Struct, frozen=True):
    processes: list[_Process]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The running platform and the ways to it."""

    home: Home
    client: AsyncAttuneClient = field(repr=False)
    # For what is measured.
    wire: WireClient = field(repr=False)
    database: Database = field(repr=False)

    @property
    def ledger(self) -> Path:
        """Where shell actions note that they started."""
        return self.home.root / "starts.txt"

    async def processes(self) -> dict[str, int]:
        """Process ids by name."""
        status = msgspec.json.decode(await ask(self.home, Request(command="status")), type=_Status)
        return {each.name: each.pid for each in status.processes if each.pid is not None}

    async def scale_executors(self, count: int) -> None:
        """Run so many executors; returns when each has told the database that it is there."""
        await ask(self.home, Request(command="scale", scale={"executor": count}))
        async with asyncio.timeout(SCALE_SECONDS_MAX):
            while await self._count_executors() != count:  # noqa: ASYNC110 - other processes register
                await asyncio.sleep(POLL_SECONDS)

    async def _count_executors(self) -> int:
        async with self.database.reading() as tx:
            return await count_executors(tx)


@asynccontextmanager
async def throw_away_platform(settings: Mapping[str, str]) -> AsyncIterator[Stage]:
    """Start one; however the block ends, no process and no file of it is left."""
    root = _make_home()
    given = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE")}
    environment = {**given, "ATTUNE_HOME": str(root), **settings}
    port = _free_port()
    try:
        await _command(environment, "up", "--detach", "--port", str(port))
        async with _stage(Home(root), f"http://127.0.0.1:{port}", environment) as stage:
            yield stage
    finally:
        try:
            await _command(environment, "down")
        finally:
            shutil.rmtree(root, ignore_errors=True)


@asynccontextmanager
async def _stage(home: Home, url: str, environment: Mapping[str, str]) -> AsyncIterator[Stage]:
    database_url = (await _command(environment, "db", "url")).strip()
    database = await Database.connect(database_url, size=2, application="attune bench")
    try:
        token = read_secret(home.cli_token)
        async with AsyncAttuneClient(url, token) as client, WireClient(url, token) as wire:
            stage = Stage(home=home, client=client, wire=wire, database=database)
            stage.ledger.touch()
            stage.ledger.chmod(0o666)  # Actions may run under another account.
            yield stage
    finally:
        await database.close()


async def _command(environment: Mapping[str, str], *arguments: str) -> str:
    """Run one command of our own; what it printed."""
    process = await asyncio.create_subprocess_exec(
        *attune_command(*arguments),
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Ctrl-C is meant for us, and we tell it.
        start_new_session=True,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.wait()
        raise
    if process.returncode:
        first, *rest = err.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise CommandFailed(f"the platform to measure: `attune {' '.join(arguments)}` failed: {first}", details=rest)
    return out.decode()


def _make_home() -> Path:
    root = Path(tempfile.mkdtemp(prefix="attune-bench-"))
    # The account that PostgreSQL runs as under root must be able to come in.
    root.chmod(0o755)
    return root


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
