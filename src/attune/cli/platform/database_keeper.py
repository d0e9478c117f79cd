"""Keeps the embedded PostgreSQL running; the services reconnect by themselves."""

import asyncio
import os
from collections.abc import Callable
from typing import Final

import structlog

from attune.cli.platform.child import Backoff, State, Status, describe_end
from attune.runtime.clock import draw, jittered_backoff, monotonic
from attune.runtime.postgres_server import PostgresServer, ServerError

NAME: Final = "postgres"
CEILING_SECONDS: Final = 2.0


class DatabaseKeeper:
    """Starts the server, starts it again when it dies, and stops it at the end."""

    def __init__(self, server: PostgresServer, *, say: Callable[[str], None]) -> None:
        self._server = server
        self._say = say
        # Everything waits for the database, so it never pauses long.
        self._backoff = Backoff(ceiling_seconds=CEILING_SECONDS)
        self._restarts = 0
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> Status:
        pid = self._server.pid
        if self._stopping:
            state = State.STOPPED if pid is None else State.STOPPING
        else:
            state = State.RESTARTING if pid is None else State.RUNNING
        return Status(name=NAME, service=NAME, pid=pid, state=state, restarts=self._restarts)

    async def start(self) -> None:
        await self._server.start()
        self._task = asyncio.create_task(self._keep_running(), name=NAME)

    async def stop(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._server.stop()

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            started = monotonic()
            reason = describe_end(await self._ended())
            healthy = monotonic() - started >= self._backoff.healthy_after_seconds
            failures = 1 if healthy else failures + 1
            self._say(f"{NAME} {reason}; starting it again")
            structlog.get_logger().warning("process.died", process=NAME, reason=reason)
            failures = await self._start_again(failures)

    async def _start_again(self, failures: int) -> int:
        """Try until it runs; how many failures there are by then."""
        while True:
            self._restarts += 1
            try:
                await asyncio.sleep(self._delay(failures))
                await self._server.start()
                return failures
            except ServerError as error:
                failures += 1
                structlog.get_logger().error("process.not_started", process=NAME, reason=str(error))

    def _delay(self, failures: int) -> float:
        return jittered_backoff(
            failures,
            first_seconds=self._backoff.first_seconds,
            ceiling_seconds=self._backoff.ceiling_seconds,
            drawn=draw(),
        )

    async def _ended(self) -> int:
        """Wait without waking up every moment, as asking the server itself would."""
        pid = self._server.pid
        if pid is not None and hasattr(os, "pidfd_open"):
            await process_end(pid)
        return await self._server.wait()


async def process_end(pid: int) -> None:
    """Return when a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
