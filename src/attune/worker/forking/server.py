"""One fork server: a launcher whose children run Python in themselves instead of executing a command.

It is started by the worker's launcher under the account of actions, because it imports what actions import.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from attune.runtime.clock import monotonic
from attune.worker.environments.build import last_lines
from attune.worker.launcher.child import Child, LauncherLost, Pipe
from attune.worker.launcher.client import MARK_ROOM, READ_BYTES, Launcher, as_file
from attune.worker.launcher.order import CLONE_NEWUSER, Account, Order, Walls
from attune.worker.processes import MARKER_VARIABLE, Children

# Importing what is usual takes a fraction of a second; a machine that needs longer runs its actions cold.
START_SECONDS_MAX: Final = 20.0
SAID_BYTES_MAX: Final = 16 * 1024


class NotStarted(Exception):
    """There is no fork server; nothing of an action has run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKind:
    """What tells one fork server from another."""

    python: Path
    account: Account | None
    preload: tuple[str, ...] = ()


class ForkServer(Launcher):
    """Spoken to like the launcher, but never replaced by itself: without it actions start cold."""

    def __init__(self, kind: ServerKind, children: Children) -> None:
        super().__init__(children)
        self._kind = kind
        self._process_child: Child | None = None
        self._said = b""
        # Done when its process is gone; None before it was started.
        self.ended: asyncio.Task[None] | None = None
        self._retired = False
        self.jobs = 0
        self.started_at = self.used_at = monotonic()
        self.divides: bool | None = None

    @property
    def lost(self) -> bool:
        return self._control is None

    @property
    def pid(self) -> int | None:
        return self._process_child.pid if self._process_child is not None else None

    async def open(self, launcher: Launcher, program: Path, *, marker: str) -> None:
        """Start it and see that it makes copies; raises NotStarted."""
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        words = [str(self._kind.python), "-I", "-B", str(program), str(launcher.pid), *self._kind.preload]
        environment = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", MARKER_VARIABLE: marker.ljust(MARK_ROOM, "-")}
        walls = Walls(account=self._kind.account)
        order = Order(words=words, environment=environment, directory=Path("/"), walls=walls)
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.setblocking(False)  # noqa: FBT003  the standard library's signature
        # From here on whoever stops this one closes it.
        self._control = own
        asyncio.get_running_loop().add_reader(own, self._hear, own)
        with theirs:
            try:
                self._process_child = await launcher.spawn(order, more=[theirs.fileno()])
            except (OSError, LauncherLost) as error:
                self.stop()
                raise NotStarted(str(error)) from None
        self.ended = asyncio.create_task(self._watch(self._process_child), name="fork server")
        if not await self._makes_copies(Walls()):
            self.stop()
            await asyncio.wait([self.ended])
            raise NotStarted(last_lines(self._said.decode(errors="replace")))

    async def spawn(self, order: Order, *, stdin: bytes | None = None, more: Sequence[int] = ()) -> Child:
        """As the launcher does; what the action is given goes past the server in a file that only the copy reads."""
        self.jobs += 1
        self.used_at = monotonic()
        mark = {name: value for name, value in order.environment.items() if name == MARKER_VARIABLE}
        given = as_file(_write_environment(order.environment))
        try:
            return await super().spawn(replace(order, environment=mark), stdin=stdin, more=[given, *more])
        finally:
            os.close(given)

    async def find_out(self, walls: Walls) -> None:
        """Whether copies can be shut in like this; tried once."""
        if walls.spaces and self.divides is None:
            self.divides = await self._makes_copies(self.own_walls(walls))

    def can_give(self, walls: Walls) -> bool:
        return not walls.spaces or bool(self.divides)

    @property
    def gone(self) -> bool:
        return self.ended is not None and self.ended.done()

    def own_walls(self, walls: Walls) -> Walls:
        """The same walls, built by an account that needs a user namespace to build them."""
        needs = walls.spaces and self._kind.account is not None
        return replace(walls, spaces=walls.spaces | CLONE_NEWUSER) if needs else walls

    def retire(self) -> None:
        """Take nothing more, and end when the last copy has ended."""
        self._retired = True
        if not self._living:
            self.stop()

    def start(self) -> None:
        raise LauncherLost

    async def _makes_copies(self, walls: Walls) -> bool:
        order = Order(words=[], environment={}, directory=Path("/"), walls=walls)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                child = await self.spawn(order)
                await child.exited
        except (TimeoutError, LauncherLost, OSError):
            return False
        child.close()
        return child.exit_code == 0

    async def _watch(self, process: Child) -> None:
        """Read what it says, which is nothing unless it cannot go on."""
        try:
            await asyncio.gather(self._listen(process.stdout), self._listen(process.stderr))
            await process.exited
        finally:
            process.close()

    async def _listen(self, pipe: Pipe) -> None:
        while content := await pipe.read(READ_BYTES):
            self._said = (self._said + content)[-SAID_BYTES_MAX:]

    def _take(self, message: bytes) -> None:
        super()._take(message)
        if self._retired and not self._living:
            self.stop()

    def _replace(self) -> None:
        if not self._retired:
            self._log.warning("fork_server.lost", python=str(self._kind.python), running=len(self._living))
        self._let_go()

    def _let_go(self) -> None:
        super()._let_go()
        if self.pid is not None and self._process_child is not None and not self._process_child.exited.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _write_environment(environment: Mapping[str, str]) -> bytes:
    fields = [f"{name}={value}" for name, value in environment.items()]
    if any("\0" in each for each in fields):
        raise ValueError("the environment contains a zero byte")
    return "\0".join(fields).encode(errors="surrogateescape")
