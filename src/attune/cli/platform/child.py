"""One supervised process: started, watched, started again under its name, ended with everything below it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from attune.runtime.clock import draw, jittered_backoff, monotonic

KILL_SECONDS_MAX: Final = 5.0


class State(StrEnum):
    """Where a supervised process stands."""

    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What to run, under which name, and where its output goes."""

    name: str
    service: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a process that died is started again."""

    first_seconds: float = 0.25
    ceiling_seconds: float = 30.0
    healthy_after_seconds: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A process ended without having been asked to."""

    name: str
    service: str
    pid: int | None
    reason: str
    delay_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One row of `attune status`."""

    name: str
    service: str
    pid: int | None
    state: State
    restarts: int


OnDeath = Callable[[Death], Awaitable[None]]


class Child:
    """Keeps one process running until it is told to stop."""

    def __init__(self, spec: Spec, *, backoff: Backoff, on_death: OnDeath) -> None:
        self.spec = spec
        self.restarts = 0
        self._backoff = backoff
        self._on_death = on_death
        self._stop = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> Status:
        alive = self._process is not None
        if self._stop.is_set():
            state = State.STOPPING if alive else State.STOPPED
        else:
            state = State.RUNNING if alive else State.RESTARTING
        pid = self._process.pid if self._process else None
        return Status(name=self.spec.name, service=self.spec.service, pid=pid, state=state, restarts=self.restarts)

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name=self.spec.name)

    async def stop(self, *, grace_seconds: float) -> None:
        """Ask the process to end; after the grace kill it and everything it started."""
        self._stop.set()
        if self._task is None:
            return
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait({self._task}, timeout=grace_seconds)
        if not done:
            self.kill()
            await asyncio.wait({self._task}, timeout=KILL_SECONDS_MAX)

    def kill(self) -> None:
        """End the process and its descendants at once."""
        self._stop.set()
        process = self._process
        if process is None:
            return
        below = descendants(process.pid)
        self._signal(signal.SIGKILL)
        kill_all(below)

    def _signal(self, which: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(which)

    async def _keep_running(self) -> None:
        while not self._stop.is_set():
            started = monotonic()
            pid, reason = await self._run_once()
            if self._stop.is_set():
                return
            await self._mourn(pid, reason, lived_seconds=monotonic() - started)

    async def _run_once(self) -> tuple[int | None, str]:
        """Run the process to its end; says which it was and how it ended."""
        try:
            self._process = await spawn(self.spec)
        except OSError as error:
            return None, f"cannot be started: {error.strerror or error}"
        if self._stop.is_set():  # Asked to stop while it was being started.
            self._signal(signal.SIGTERM)
        code = await self._process.wait()
        pid = self._process.pid
        self._process = None
        return pid, describe_end(code)

    async def _mourn(self, pid: int | None, reason: str, *, lived_seconds: float) -> None:
        """Report the death, then wait before the next start."""
        healthy = lived_seconds >= self._backoff.healthy_after_seconds
        self._failures = 1 if healthy else self._failures + 1
        self.restarts += 1
        delay = jittered_backoff(
            self._failures,
            first_seconds=self._backoff.first_seconds,
            ceiling_seconds=self._backoff.ceiling_seconds,
            drawn=draw(),
        )
        spec = self.spec
        await self._on_death(Death(name=spec.name, service=spec.service, pid=pid, reason=reason, delay_seconds=delay))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), delay)


async def spawn(spec: Spec) -> asyncio.subprocess.Process:
    """Start a process in a session of its own, so that Ctrl-C in the terminal reaches only the supervisor."""
    # Append mode: the file may be cut to nothing under the process, which then goes on at the new end.
    log = os.open(spec.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        return await asyncio.create_subprocess_exec(
            *spec.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(spec.environment),
            start_new_session=True,
        )
    finally:
        os.close(log)


def describe_end(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def descendants(pid: int) -> list[psutil.Process]:
    """Everything a process started, directly or not."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):  # Gone already, or not ours: then it was not left behind.
            process.kill()
