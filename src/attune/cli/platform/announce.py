"""Tells the person who typed `attune up` what happens: directly, or through the pipe of a detached supervisor."""

import contextlib
import os
import sys
from typing import Final, Protocol

import msgspec

from attune.cli.session import command_name

LINE_BYTES_MAX: Final = 65_536


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a person needs to know once the platform is ready."""

    url: str
    home: str
    login: str
    password: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One line from the detached supervisor to the command that started it."""

    text: str | None = None
    ready: Summary | None = None
    error: str | None = None
    exit_code: int = 0


class Announcer(Protocol):
    """Whoever listens while the platform starts and runs."""

    def say(self, text: str) -> None: ...

    def ready(self, summary: Summary) -> None: ...


class Terminal:
    """A person looks at this process's own stderr."""

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # A terminal that was closed is no reason to stop.
            print(text, file=sys.stderr, flush=True)

    def ready(self, summary: Summary) -> None:
        self.say(describe(summary))
        self.say("Ctrl-C stops everything.")


class Pipe:
    """The command that detached us waits at the other end, until we are ready or have failed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)  # noqa: FBT003  the standard library's own signature

    def say(self, text: str) -> None:
        self._send(Message(text=text))

    def ready(self, summary: Summary) -> None:
        self._send(Message(ready=summary))
        self.close()

    def failed(self, error: str, exit_code: int) -> None:
        self._send(Message(error=error, exit_code=exit_code))
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _send(self, message: Message) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # Nobody listens any more.
                os.write(self._descriptor, msgspec.json.encode(message) + b"\n")


def describe(summary: Summary) -> str:
    """The summary as a person reads it; the last line can be typed as it stands."""
    lines = ["", f"Attune is ready at {summary.url}", f"  home      {summary.home}", f"  login     {summary.login}"]
    if summary.password is not None:
        lines.append(f"  password  {summary.password}   (shown only now)")
    lines += ["", "Try:", f"  {command_name()} run core.echo message=hi --wait", ""]
    return "\n".join(lines)
