"""A started process as the worker sees it: its number, what it prints, and its end."""

import asyncio
import os
from dataclasses import dataclass


class LauncherLost(Exception):
    """The launcher ended, and with it everything it had started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEntered:
    """Why a child did not become its command: the errno, and the step it failed at unless it was the last one."""

    number: int
    step: str

    def __str__(self) -> str:
        reason = os.strerror(self.number)
        return f"cannot {self.step}: {reason}" if self.step else f"cannot be started: {reason}"


class Pipe:
    """The reading end of what a process prints. Nothing is read before it is wanted, so that the process waits."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def read(self, bytes_max: int) -> bytes:
        """What is there, as soon as something is; nothing at the end."""
        while self._descriptor >= 0:
            try:
                return os.read(self._descriptor, bytes_max)
            except BlockingIOError:
                await self._readable()
        return b""

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self._descriptor, settle, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._descriptor)


class Child:
    """A started process."""

    def __init__(self, pid: int, stdout: Pipe, stderr: Pipe) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stderr = stderr
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # None while it runs and if nobody saw its end; negative if a signal ended it.
        self.exit_code: int | None = None
        self.not_entered: NotEntered | None = None
        # It was ended together with the launcher.
        self.lost = False

    def end(self, exit_code: int | None, not_entered: NotEntered | None = None) -> None:
        """Note its end."""
        self.exit_code = exit_code
        self.not_entered = not_entered
        self.lost = exit_code is None
        if not self.exited.done():
            self.exited.set_result(None)

    def close(self) -> None:
        """Let go of what it prints, ended or not."""
        self.stdout.close()
        self.stderr.close()


def settle(ready: "asyncio.Future[None]") -> None:
    """For a loop's callbacks: whoever waits may have gone away since."""
    if not ready.done():
        ready.set_result(None)
