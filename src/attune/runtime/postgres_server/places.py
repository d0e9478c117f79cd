"""Directories of the embedded PostgreSQL: who owns them, who may pass through, who may look inside."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attune.runtime.postgres_server.account import Account, require_entrance
from attune.runtime.postgres_server.errors import ServerError

PRIVATE = 0o700
# Root's directories must let the database account pass, but not look around.
PASSABLE = 0o711


def make_directories(directory: Path) -> None:
    """Create what is missing of a path; what exists keeps its mode."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        # Not through mkdir, whose mode is cut down by the umask.
        each.chmod(PASSABLE if os.geteuid() == 0 else PRIVATE)


def prepare_way(directory: Path, account: Account) -> None:
    """Make a directory the account can enter; nothing is created below one it cannot."""
    existing = next(each for each in (directory, *directory.parents) if each.exists())
    require_entrance(account, existing)
    make_directories(directory)


def prepare_private(directory: Path, account: Account) -> None:
    """Make, or recognise, a directory that belongs to the account alone."""
    prepare_way(directory.parent, account)
    try:
        directory.mkdir(mode=PRIVATE)
    except FileExistsError:
        _require_private(directory, account)
    # Safe from being swapped under us: only its owner may rename an entry of the temp dir.
    os.chown(directory, account.uid, account.gid, follow_symlinks=False)


def _require_private(directory: Path, account: Account) -> None:
    found = directory.lstat()
    private = stat.S_ISDIR(found.st_mode) and found.st_mode & 0o7777 == PRIVATE
    if private and found.st_uid == account.uid:
        return
    # Root was killed between making it and handing it over. One with contents may be anything, even root's own home.
    if private and found.st_uid == os.geteuid() and not any(directory.iterdir()):
        return
    raise ServerError(
        f"PostgreSQL needs {directory} for itself: a directory of {account.name} (uid {account.uid}) with mode 0700. "
        f"It belongs to uid {found.st_uid}, {stat.filemode(found.st_mode)}. "
        "Find out who made it, remove it, or set another socket directory.",
    )


@contextmanager
def secret_file(secret: str, *, directory: Path, account: Account) -> Iterator[Path]:
    """A file only the account can read, gone afterwards; passwords never appear in a command line."""
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=".secret-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchown(file.fileno(), account.uid, account.gid)
            file.write(f"{secret}\n")
        yield Path(name)
    finally:
        Path(name).unlink()


@contextmanager
def start_lock(data: Path) -> Iterator[bool]:
    """Whether this process alone prepares and starts on the data directory; the kernel frees it if we die."""
    with data.with_name(f".{data.name}.lock").open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
