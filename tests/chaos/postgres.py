"""The PostgreSQL of a run: with durable commits, behind TCP, and made to be crashed."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import psutil

from attune.runtime.postgres_server.account import Account, choose_account, identity
from attune.runtime.postgres_server.binaries import Binaries, find_binaries, reachable_binaries
from tests.chaos.kinds import POSTGRES
from tests.witness.servers import ServerFailed, free_ports
from tests.witness.waiting import until

DATABASE = "attune"
START_SECONDS = 60.0
STOP_SECONDS = 15.0
OPTIONS = ("max_connections=200", "dynamic_shared_memory_type=mmap", "shared_buffers=64MB", "restart_after_crash=on")


@dataclass(kw_only=True)
class Postgres:
    """One server; `crash` and `start` stand for a machine that went down and came back."""

    folder: Path
    binaries: Binaries
    account: Account
    # Added to the environment of the server.
    variables: Mapping[str, str]
    port: int = field(default_factory=lambda: free_ports(1)[0])
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    process: Process | None = None

    @property
    def url(self) -> str:
        return f"postgresql://attune:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    async def create(self) -> None:
        """Make the data directory and the database."""
        secret = self.folder / "password"
        secret.write_text(self.password)
        for path in (self.folder, secret):
            os.chown(path, self.account.uid, self.account.gid)
        made = await self._run(
            "initdb",
            *("-D", f"{self.folder}/data", "-U", "attune", "-E", "UTF8", "--locale=C", "--no-sync"),
            *("-A", "scram-sha-256", "--pwfile", str(secret)),
        )
        if await made.wait() != 0:
            raise ServerFailed(self._log_end())
        await self.start()
        connection = await asyncpg.connect(self.url.removesuffix(DATABASE) + "postgres")
        try:
            await connection.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            await connection.close()

    async def start(self) -> None:
        """Returns when it answers questions again."""
        options = [word for option in OPTIONS for word in ("-c", option)]
        self.process = await self._run(
            *("postgres", "-D", f"{self.folder}/data", "-p", str(self.port), "-k", "", "-h", "127.0.0.1", *options),
            shim=True,
        )
        await until(self.answers, seconds=START_SECONDS)

    async def answers(self) -> bool:
        """Whether it lets somebody in."""
        if self.process is None or self.process.returncode is not None:
            raise ServerFailed(self._log_end())
        try:
            connection = await asyncpg.connect(self.url.removesuffix(DATABASE) + "postgres", timeout=5)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False
        await connection.close()
        return True

    async def crash(self) -> None:
        """Every process of it at once; what was not synced may be gone."""
        assert self.process is not None
        top = psutil.Process(self.process.pid)
        doomed = [top, *top.children(recursive=True)]
        for each in doomed:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        await self.process.wait()
        await asyncio.to_thread(psutil.wait_procs, doomed, STOP_SECONDS)

    def backends(self) -> list[int]:
        """The processes that serve a client."""
        assert self.process is not None
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children()
            return [child.pid for child in children if f"attune {DATABASE}" in " ".join(child.cmdline())]
        return []

    async def stop(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
        except TimeoutError:
            await self.crash()

    async def _run(self, program: str, *arguments: str, shim: bool = False) -> Process:
        variables = {**self.variables, "ATTUNE_PROCESS": POSTGRES} if shim else {}
        with (self.folder / "output.log").open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(str(self.binaries.program(program)), *arguments),
                env={**self.binaries.environment(), **variables},
                cwd="/",
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,
                **identity(self.account),
            )

    def _log_end(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")[-2000:]


@asynccontextmanager
async def a_postgres(folder: Path, variables: Mapping[str, str]) -> AsyncIterator[Postgres]:
    """One in a folder of its own, which stays."""
    folder.mkdir()
    account = choose_account(configured=None, data=folder / "data")
    binaries = reachable_binaries(find_binaries(None), account=account, home=folder)
    server = Postgres(folder=folder, binaries=binaries, account=account, variables=variables)
    try:
        await server.create()
        yield server
    finally:
        await server.stop()
