"""The worker's side of the launcher: starts it, asks it for processes, and hears of their ends."""

import asyncio
import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from attune.runtime.failpoints import failpoint
from attune.worker.launcher.child import Child, LauncherLost, NotEntered, Pipe, settle
from attune.worker.launcher.order import Order, write_order
from attune.worker.processes import MARKER_VARIABLE, Children

PROGRAM: Final = Path(__file__).with_name("server.py")
# Nothing it starts will ever be root's; it starts nothing the quick way.
CONFINED: Final = "confined"
FORKING: Final = "forking"
MESSAGE_BYTES_MAX: Final = 1024
READ_BYTES: Final = 64 * 1024
# For the longest mark: a child that stays in the launcher's program writes its own over this.
MARK_ROOM: Final = 300
_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """How a command that was tried ended, and what it printed."""

    pid: int
    exit_code: int
    stdout: str
    stderr: str


class Launcher:
    """One launcher process, replaced by another when it ends; its flags are CONFINED and FORKING."""

    def __init__(
        self,
        children: Children,
        *,
        interpreter: str = sys.executable,
        program: Path = PROGRAM,
        flags: Sequence[str] = (),
    ) -> None:
        self._children = children
        self._command = [interpreter, "-I", "-S", "-B", str(program)]
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._count = 0
        self._starting: dict[int, asyncio.Future[int]] = {}
        self._living: dict[int, Child] = {}
        self._sending = asyncio.Lock()
        self._nothing = -1
        self._answered = False
        self._log = structlog.get_logger()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it; it need not have come up before it is asked for something."""
        if self._nothing < 0:
            self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.setblocking(False)  # noqa: FBT003  the standard library's signature
        with theirs:
            told = [str(theirs.fileno()), str(os.getpid()), *self._flags]
            self._process = subprocess.Popen(
                [*self._command, *told],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        self._children.own.add(self._process.pid)
        self._control = own
        asyncio.get_running_loop().add_reader(own, self._hear, own)

    def stop(self) -> None:
        """End it and whatever it still runs."""
        self._let_go()
        if self._nothing >= 0:
            os.close(self._nothing)
            self._nothing = -1

    async def spawn(self, order: Order, *, stdin: bytes | None = None, more: Sequence[int] = ()) -> Child:
        """Start a process; without `stdin` it has nothing to read. Raises OSError, OrderTooLarge, LauncherLost.

        Its descriptors are the three streams and, behind them, `more`.
        """
        self._count += 1
        key = self._count
        content = write_order(order, key)
        account = order.walls.account
        with contextlib.ExitStack() as given:
            feeding = self._nothing if stdin is None else _hold(given, as_file(stdin))
            stdout, stdout_end = _pipe(given)
            stderr, stderr_end = _pipe(given)
            if account is not None:
                # A script that opens /dev/stderr opens the pipe anew, which only its owner may.
                os.fchown(stdout_end, account.uid, account.gid)
                os.fchown(stderr_end, account.uid, account.gid)
            child = Child(0, Pipe(stdout), Pipe(stderr))
            self._living[key] = child
            try:
                child.pid = await self._ask(key, content, [feeding, stdout_end, stderr_end, *more])
            except BaseException:
                self._living.pop(key, None)
                child.close()
                raise
        return child

    async def probe(self, order: Order, *, seconds_max: float) -> Probed:
        """Run a command to its end and give back what it printed; raises OSError if it cannot be run."""
        child = await self.spawn(order)
        try:
            async with asyncio.timeout(seconds_max):
                stdout, stderr, _ = await asyncio.gather(_read(child.stdout), _read(child.stderr), child.exited)
        except TimeoutError:
            _kill(child.pid)
            raise OSError(errno.ETIMEDOUT, f"{order.words[0]} did not end within {seconds_max:g} s") from None
        finally:
            child.close()
        if child.not_entered is not None:
            raise OSError(child.not_entered.number, str(child.not_entered))
        if child.exit_code is None:
            raise OSError(errno.ESRCH, "the launcher ended")
        return Probed(pid=child.pid, exit_code=child.exit_code, stdout=stdout, stderr=stderr)

    async def _ask(self, key: int, content: bytes, descriptors: Sequence[int]) -> int:
        if self._control is None:
            self.start()
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._starting[key] = answer
        try:
            await self._send(content, descriptors)
            if failpoint("launcher.asked.before_answer") and self._process is not None:
                self._process.kill()
            return await answer
        finally:
            self._starting.pop(key, None)

    async def _send(self, content: bytes, descriptors: Sequence[int]) -> None:
        async with self._sending:
            while self._control is not None:
                try:
                    socket.send_fds(self._control, [content], descriptors)
                except BlockingIOError:
                    await _writable(self._control)
                except OSError:
                    break
                else:
                    return
        raise LauncherLost

    def _hear(self, control: socket.socket) -> None:
        while True:
            try:
                message = control.recv(MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._replace()
                return
            self._take(message)

    def _take(self, message: bytes) -> None:
        kind, key_text, rest = message.split(b" ", 2)
        key = int(key_text)
        if kind == b"ended":
            status, number, step = rest.split(b" ", 2)
            failure = NotEntered(number=int(number), step=step.decode()) if int(number) else None
            if child := self._living.pop(key, None):
                child.end(os.waitstatus_to_exitcode(int(status)), failure)
            return
        self._answered = True
        answer = self._starting.get(key)
        if answer is None or answer.done():
            if kind == b"started":
                # Whoever asked for it has gone away meanwhile.
                _kill(int(rest))
        elif kind == b"started":
            answer.set_result(int(rest))
        else:
            number, _, step = rest.partition(b" ")
            refused = NotEntered(number=int(number), step=step.decode())
            answer.set_exception(OSError(refused.number, str(refused)))

    def _replace(self) -> None:
        """It ended by itself or was killed. Where it never answered, the next one waits until it is needed."""
        self._log.error("launcher.lost", pid=self.pid, running=len(self._living))
        answered = self._answered
        self._let_go()
        if answered:
            self.start()

    def _let_go(self) -> None:
        process, control = self._process, self._control
        self._process = self._control = None
        self._answered = False
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()
        if process is not None:
            process.kill()
            process.wait()
            self._children.own.discard(process.pid)
        for answer in self._starting.values():
            if not answer.done():
                answer.set_exception(LauncherLost())
        living, self._living = self._living, {}
        for child in living.values():
            child.end(None)


def _environment() -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        # Like every process of an installation it says whose it is.
        "ATTUNE_HOME": os.environ.get("ATTUNE_HOME", ""),
        MARKER_VARIABLE: "-" * MARK_ROOM,
    }


def _pipe(given: contextlib.ExitStack) -> tuple[int, int]:
    """Both ends; the writing one is closed here as soon as it was handed over."""
    reading, writing = os.pipe2(os.O_CLOEXEC)
    return reading, _hold(given, writing)


def _hold(given: contextlib.ExitStack, descriptor: int) -> int:
    given.callback(os.close, descriptor)
    return descriptor


def as_file(content: bytes) -> int:
    """Something to read that needs nobody to feed it, whether or not it is ever read, and that cannot be changed."""
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", buffering=0, closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


async def _read(pipe: Pipe) -> str:
    content = b""
    while more := await pipe.read(READ_BYTES):
        content += more
    return content.decode(errors="replace")


async def _writable(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(control, settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(control)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
