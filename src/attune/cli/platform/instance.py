"""One supervisor per home: a lock that the kernel frees when its holder dies."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from attune.cli.exits import CommandFailed, Exit
from attune.cli.session import command_name
from attune.runtime.home import Home, unusable

_PID_CHARACTERS_MAX: Final = 20
# A guardian that cleans up after a killed supervisor holds the lock for a moment; longer than this is no moment.
GUARDIAN_SECONDS_MAX: Final = 120.0
_POLL_SECONDS: Final = 0.05
GUARDIAN_MARK: Final = "guardian"


@contextmanager
def only_instance(home: Home, *, mark: str = "") -> Iterator[None]:
    """Hold the home for this process; refuses when another one does, and says which."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(home, error) from error
    try:
        _lock(home, descriptor)
        os.truncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()} {mark}\n".encode())
        yield
        with contextlib.suppress(OSError):
            os.truncate(descriptor, 0)
    finally:
        os.close(descriptor)


def owner(home: Home) -> int | None:
    """The process that holds the home now; None if none does."""
    try:
        with home.lock.open("r+", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = file.read(_PID_CHARACTERS_MAX).partition(" ")[0]
                return int(pid) if pid.isdigit() else -1
    except OSError:
        return None
    return None


def _lock(home: Home, descriptor: int) -> None:
    deadline = time.monotonic() + GUARDIAN_SECONDS_MAX
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 2 * _PID_CHARACTERS_MAX, 0).decode("ascii")
            # Without a name in it, somebody only looks who holds it, or was given it this very moment.
            passing = not holder or GUARDIAN_MARK in holder
            if not passing or time.monotonic() > deadline:
                raise _taken(home) from error
        time.sleep(_POLL_SECONDS)


def _taken(home: Home) -> CommandFailed:
    pid = owner(home)
    who = f" (pid {pid})" if pid and pid > 0 else ""
    message = (
        f"Attune already runs in {home.root}{who}. See `{command_name()} status`, "
        f"stop it with `{command_name()} down`, or choose another home with ATTUNE_HOME"
    )
    return CommandFailed(message, exit_code=Exit.INVALID)
