"""The life of one embedded PostgreSQL: prepare, start, watch, stop."""

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from urllib.parse import quote

from attune.runtime.postgres_server.account import Account, choose_account
from attune.runtime.postgres_server.binaries import Binaries, find_binaries, reachable_binaries
from attune.runtime.postgres_server.client import ensure_database
from attune.runtime.postgres_server.data import prepare_data
from attune.runtime.postgres_server.errors import AlreadyRunning, ServerError, from_os_error
from attune.runtime.postgres_server.launch import open_log, spawn, tail_of
from attune.runtime.postgres_server.places import prepare_private, prepare_way, start_lock
from attune.runtime.postgres_server.plan import DATABASE, SUPERUSER, ServerPlan, socket_directory, socket_lock
from attune.runtime.postgres_server.processes import (
    orphans,
    read_pid_file,
    remove_stale_locks,
    running_server,
)

POLL_SECONDS = 0.05
# Long enough to replay a full write-ahead log on a slow disk; after it the server is ended and an error raised.
START_SECONDS_MAX = 300.0
# Orphans notice within moments that their server is gone, unless they are busy: then they are told to end.
ORPHAN_GRACE_SECONDS = 2.0
ORPHAN_SECONDS_MAX = 30.0
FAST_STOP_SECONDS_MAX = 30.0
IMMEDIATE_STOP_SECONDS_MAX = 15.0

# What PostgreSQL says while something of an earlier server is still alive.
STILL_OCCUPIED = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class PostgresServer:
    """One server of one data directory, a direct child of the process that started it."""

    def __init__(self, plan: ServerPlan) -> None:
        self.plan = plan
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """A libpq URL, with the password; known before the server is started."""
        host = quote(str(socket_directory(self.plan)), safe="")
        password = quote(self.plan.password, safe="")
        return f"postgresql://{SUPERUSER}:{password}@/{database}?host={host}&port={self.plan.port}"

    @property
    def pid(self) -> int | None:
        """The process id of our child; None before its start and after its end."""
        return self._child.pid if self._child and self._child.poll() is None else None

    def running_pid(self) -> int | None:
        """The process id of the server that runs on this data directory, whoever started it."""
        try:
            return running_server(self.plan.data)
        except OSError as error:
            raise from_os_error(error, home=self.plan.home) from error

    async def start(self) -> None:
        """Return when the server accepts connections and the database `attune` exists."""
        deadline = time.monotonic() + START_SECONDS_MAX
        try:
            account = await asyncio.to_thread(_prepare_way, self.plan)
            while not await self._start_alone(account, deadline=deadline):
                await _pause(deadline, complaint=f"Another process is still starting PostgreSQL on {self.plan.data}.")
        except OSError as error:
            raise from_os_error(error, home=self.plan.home) from error

    async def ensure_database(self, name: str) -> None:
        """Create a further database unless it exists."""
        await asyncio.to_thread(ensure_database, self.plan, name)

    async def wait(self) -> int:
        """The exit status of our server, when it ends for whatever reason; negative if a signal ended it."""
        if self._child is None:
            raise ServerError(f"PostgreSQL on {self.plan.data} was not started by this process. Call start() first.")
        # Polled: the subprocesses of uvloop cannot change accounts, and waiting in a thread cannot be cancelled.
        while (status := self._child.poll()) is None:  # noqa: ASYNC110  # a process sets no event
            await asyncio.sleep(POLL_SECONDS)
        return status

    async def stop(self) -> None:
        """End the server of this data directory, whoever started it; open transactions are rolled back."""
        for how, seconds_max in (
            (signal.SIGINT, FAST_STOP_SECONDS_MAX),
            (signal.SIGQUIT, IMMEDIATE_STOP_SECONDS_MAX),
        ):
            pid = self.pid or self.running_pid()
            if pid is None:
                return
            _send(pid, how)
            if await self._gone(seconds_max):
                return
        raise ServerError(f"PostgreSQL on {self.plan.data} does not end. Look at {self.plan.log}, then end it by hand.")

    async def _start_alone(self, account: Account, *, deadline: float) -> bool:
        """False if another process is just starting on the same data directory."""
        with start_lock(self.plan.data) as alone:
            if not alone:
                return False
            pid = self.running_pid()
            if pid is not None:
                raise AlreadyRunning(data=self.plan.data, pid=pid)
            binaries = await asyncio.to_thread(_prepare_files, self.plan, account)
            await self._outlive_orphans()
            try:
                await self._launch(binaries, account, deadline=deadline)
                await self.ensure_database(DATABASE)
            except BaseException:
                await self._abandon()
                raise
        return True

    async def _launch(self, binaries: Binaries, account: Account, *, deadline: float) -> None:
        """Start until it stays up: what is left of a killed server may occupy the data directory for a moment."""
        occupied_until = time.monotonic() + ORPHAN_SECONDS_MAX
        while True:
            remove_stale_locks(self.plan.data, socket_lock=socket_lock(self.plan))
            begin = open_log(self.plan.log)
            self._child = spawn(self.plan, binaries=binaries, account=account)
            if await self._ready(deadline):
                return
            said = tail_of(self.plan.log, begin=begin)
            complaint = f"PostgreSQL on {self.plan.data} ended while starting; its log {self.plan.log} says:\n{said}"
            if not any(text in said for text in STILL_OCCUPIED):
                raise ServerError(complaint)
            await _pause(occupied_until, complaint=complaint)

    async def _outlive_orphans(self) -> None:
        begun = time.monotonic()
        while left := await asyncio.to_thread(orphans, self.plan.data):
            if time.monotonic() > begun + ORPHAN_GRACE_SECONDS:
                for pid in left:
                    _send(pid, signal.SIGQUIT)
            complaint = f"Processes of an earlier PostgreSQL still use {self.plan.data}: {left}. End them by hand."
            await _pause(begun + ORPHAN_SECONDS_MAX, complaint=complaint)

    async def _ready(self, deadline: float) -> bool:
        """True when our child accepts connections, False when it has ended."""
        while self.pid is not None:
            found = read_pid_file(self.plan.data)
            if found is not None and found.ready and found.pid == self.pid:
                return True
            await _pause(deadline, complaint=f"PostgreSQL on {self.plan.data} is not ready. Look at {self.plan.log}.")
        return False

    async def _gone(self, seconds_max: float) -> bool:
        deadline = time.monotonic() + seconds_max
        while self.pid or self.running_pid():
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _abandon(self) -> None:
        """Leave no server behind a start that failed or was cancelled."""
        # One that is still setting itself up may not listen to the first.
        for how in (signal.SIGQUIT, signal.SIGKILL):
            if self.pid is not None:
                _send(self.pid, how)
                await self._gone(IMMEDIATE_STOP_SECONDS_MAX)


def _prepare_way(plan: ServerPlan) -> Account:
    account = choose_account(configured=plan.user, data=plan.data)
    prepare_way(plan.home, account)
    prepare_way(plan.data.parent, account)
    return account


def _prepare_files(plan: ServerPlan, account: Account) -> Binaries:
    binaries = reachable_binaries(find_binaries(plan.bin_dir), account=account, home=plan.home)
    private = socket_directory(plan)
    prepare_private(private, account)
    prepare_data(plan, binaries=binaries, account=account, private=private)
    return binaries


async def _pause(deadline: float, *, complaint: str) -> None:
    """Wait a moment, but never past the deadline."""
    if time.monotonic() > deadline:
        raise ServerError(complaint)
    await asyncio.sleep(POLL_SECONDS)


def _send(pid: int, how: signal.Signals) -> None:
    # It may have ended just now, which is what the signal is for.
    with suppress(ProcessLookupError):
        os.kill(pid, how)
