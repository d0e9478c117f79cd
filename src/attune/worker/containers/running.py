"""One running container: fed and read, asked to end, made to end, and seen to have ended."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attune.worker.containers.engine import Engine
from attune.worker.results import Captured
from attune.worker.runners.contract import read_stream
from attune.worker.runners.protocol import AT_ONCE, Output, StopReason, Stream

# podman waits until the process that watched the container is gone, and only the worker can take leave of that one.
REAP_SECONDS: Final = 0.05
# Five seconds; an image that is being fetched takes longer, and then there is no container.
MAKING_LOOKS_MAX: Final = 100
# If somebody else took the exit code away.
UNKNOWN_EXIT: Final = 255


class Running:
    """The program that started a container, and through it the container itself."""

    def __init__(
        self,
        engine: Engine,
        process: asyncio.subprocess.Process,
        *,
        id_file: Path,
        label: str,
        grace_seconds: float,
    ) -> None:
        self._engine = engine
        self._process = process
        self._id_file = id_file
        self._label = label
        self._grace_seconds = grace_seconds
        self._urgent = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self.gone = True

    @property
    def container(self) -> str | None:
        """The container's number, as soon as there is one."""
        try:
            return self._id_file.read_text(encoding="ascii").strip() or None
        except OSError:
            return None

    @property
    def stopped(self) -> bool:
        """Whether somebody asked it to end."""
        return self._ending is not None

    def stop(self, reason: StopReason) -> None:
        """End it: at once where the attempt may no longer be ours, else with a warning and some time."""
        if reason in AT_ONCE:
            self._urgent.set()
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="container ending")

    async def attend(self, fed: bytes, *, captured: Mapping[Stream, Captured], output: Output) -> int:
        """Feed, read both streams to their end, and see the container off; returns the exit code."""
        process = self._process
        assert process.stdout is not None  # noqa: S101  both are pipes
        assert process.stderr is not None  # noqa: S101  as above
        streams = asyncio.gather(
            read_stream(process.stdout, Stream.STDOUT, captured[Stream.STDOUT], output),
            read_stream(process.stderr, Stream.STDERR, captured[Stream.STDERR], output),
            _feed(process, fed),
        )
        try:
            await streams
            await self._exit()
            if self._ending is not None:
                await self._ending
        except BaseException:
            # The worker itself is being stopped by force: nothing may be left running.
            self._urgent.set()
            streams.cancel()
            await asyncio.shield(self._end())
            raise
        finally:
            await self._engine.see_off(process)
        return process.returncode if process.returncode is not None else UNKNOWN_EXIT

    async def _exit(self) -> None:
        ended = asyncio.ensure_future(self._process.wait())
        while not ended.done():
            await asyncio.wait([ended], timeout=REAP_SECONDS)
            self._engine.children.reap()

    async def _end(self) -> None:
        if await self._wait_for_container() and not self._urgent.is_set():
            await self._engine.signal(self.container or "", "TERM")
            await self._wait_for_grace()
        if self.container is None:
            self._kill_program()  # So that it makes none any more.
        self.gone = await self._engine.remove_all(self._label)
        self._kill_program()

    def _kill_program(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _wait_for_container(self) -> bool:
        """One that is being made cannot be removed yet, and would be there afterwards."""
        for _ in range(MAKING_LOOKS_MAX):
            if self.container is not None:
                return True
            if self._process.returncode is not None:
                return False
            await asyncio.sleep(REAP_SECONDS)
        return False

    async def _wait_for_grace(self) -> None:
        """Until it has ended by itself, the time is over, or somebody is in more of a hurry."""
        waits = [asyncio.ensure_future(self._process.wait()), asyncio.ensure_future(self._urgent.wait())]
        try:
            await asyncio.wait(waits, timeout=self._grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


async def _feed(process: asyncio.subprocess.Process, content: bytes) -> None:
    assert process.stdin is not None  # noqa: S101  it is a pipe
    # An action need not read its parameters.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(content)
        await process.stdin.drain()
    process.stdin.close()
