"""What can go wrong with the embedded PostgreSQL: each message names the thing, the place and the cure."""

import errno
from pathlib import Path

CURES = {
    errno.EACCES: "Give this account write permission there, or choose another home.",
    errno.EPERM: "Give this account write permission there, or choose another home.",
    errno.EROFS: "The file system is read-only: mount it writable, or choose another home.",
    errno.ENOSPC: "The disk is full: make room, or choose another home.",
    errno.EDQUOT: "The disk quota is used up: make room, or choose another home.",
}


class ServerError(Exception):
    """The embedded PostgreSQL cannot do what was asked of it."""


class AlreadyRunning(ServerError):
    """A healthy server already works on this data directory."""

    def __init__(self, *, data: Path, pid: int) -> None:
        super().__init__(
            f"PostgreSQL already runs on {data} (pid {pid}). "
            "Use that one, or stop it first: stop() ends it even if another process started it.",
        )
        self.pid = pid


def from_os_error(error: OSError, *, home: Path) -> ServerError:
    place = error.filename or home
    reason = error.strerror or str(error)
    cure = CURES.get(error.errno or 0, f"Check the disk and the permissions of {home}.")
    return ServerError(f"PostgreSQL cannot use {place}: {reason}. {cure}")
