"""How other commands talk to the supervisor: one JSON line each way over a private Unix socket."""

import asyncio
import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from attune.cli.exits import CommandFailed, Exit
from attune.runtime.home import PRIVATE, Home

# The kernel allows 107 bytes; a longer path cannot be bound at all.
SOCKET_PATH_BYTES_MAX: Final = 100
LINE_BYTES_MAX: Final = 65_536
ANSWER_SECONDS_MAX: Final = 15.0
CONNECTIONS_MAX: Final = 16
SOCKET_MODE: Final = 0o600


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked: `status`, `scale` with numbers, or `down`."""

    command: str
    scale: dict[str, int] = {}
    # Of services that follow what is wanted, from the number above up to this one.
    at_most: dict[str, int] = {}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: a document, or the reason why not."""

    document: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


Answer = Callable[[Request], Awaitable[object]]


class NotRunning(CommandFailed):
    """No supervisor answers for this home."""

    def __init__(self, home: Home) -> None:
        super().__init__(f"nothing runs in {home.root}", exit_code=Exit.UNREACHABLE)


def socket_path(home: Home) -> Path:
    """In the home, or in a short private directory where that path would be too long for a socket."""
    wanted = home.run / "control.sock"
    if len(os.fsencode(wanted)) <= SOCKET_PATH_BYTES_MAX:
        return wanted
    digest = hashlib.sha256(os.fsencode(home.root.resolve())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"attune-{os.geteuid()}-{digest}" / "control.sock"


class ControlServer:
    """Answers requests until it is closed."""

    def __init__(self, home: Home, answer: Answer) -> None:
        self._home = home
        self._path = socket_path(home)
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self) -> None:
        """Listen; the caller holds the home's lock, so a socket that exists is a leftover."""
        if self._path.parent != self._home.run:
            _make_private(self._path.parent)
        self._path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=LINE_BYTES_MAX)
        finally:
            os.umask(before)
        self._path.chmod(SOCKET_MODE)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
            if self._path.parent != self._home.run:
                with contextlib.suppress(OSError):
                    self._path.parent.rmdir()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:  # Beyond it the caller sees the connection close.
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    writer.write(msgspec.json.encode(await self._reply(await reader.readline())) + b"\n")
                    await writer.drain()
        except (OSError, ValueError, TimeoutError):
            return  # The caller went away, sent too much, or took too long: nothing to answer.
        finally:
            self._open -= 1
            writer.close()

    async def _reply(self, line: bytes) -> Reply:
        try:
            request = msgspec.json.decode(line, type=Request)
            return Reply(document=msgspec.Raw(msgspec.json.encode(await self._answer(request))))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            return Reply(error=f"not understood: {error}")
        except CommandFailed as error:
            return Reply(error=error.message)


async def ask(home: Home, request: Request) -> bytes:
    """Send one request to the supervisor of a home; the JSON document it answers with."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            line = await _exchange(socket_path(home), request)
    except TimeoutError as error:
        message = f"the supervisor of {home.root} does not answer"
        raise CommandFailed(message, exit_code=Exit.TIMEOUT) from error
    except PermissionError as error:
        message = f"the platform in {home.root} belongs to another account; run this as the one that ran `up`"
        raise CommandFailed(message, exit_code=Exit.AUTH) from error
    except OSError as error:
        raise NotRunning(home) from error
    if not line:
        raise NotRunning(home)
    reply = msgspec.json.decode(line, type=Reply)
    if reply.error is not None:
        raise CommandFailed(reply.error, exit_code=Exit.INVALID)
    return bytes(reply.document)


async def _exchange(path: Path, request: Request) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()


def _make_private(directory: Path) -> None:
    """Make, or recognise, a directory of ours that nobody else can enter."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=PRIVATE)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != PRIVATE:
        raise CommandFailed(f"{directory} is not a private directory of ours. Find out who made it and remove it")
