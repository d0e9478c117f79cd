"""The private directory of one attempt: made for it, written before it starts, removed when it has ended.

One that an attempt left as it had found it serves the next: on a busy disk making and removing a directory takes longer
than a shell.
"""

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.worker.launcher.order import Account, Walls

COMMAND_FILE: Final = "command"
PARAMETERS_FILE: Final = "parameters"
OUTPUT_FILE: Final = "output.json"
# Why it failed, in the words of the program that runs it.
FAILURE_FILE: Final = "failure.json"


# Our own files.
_OURS: Final = frozenset({COMMAND_FILE, PARAMETERS_FILE, OUTPUT_FILE, FAILURE_FILE})
# More than run at one time are not kept.
SPARES_MAX: Final = 100


@dataclass(slots=True, kw_only=True)
class Workspace:
    """A private directory in use."""

    directory: Path
    walls: Walls
    # Set once everything that ran in it is gone.
    left: bool = False


class Spares:
    """Private directories, and those of them that nobody uses at the moment: empty, and as they were made."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._spares: dict[Account | None, list[Path]] = {}

    def take(self, execution_id: int, walls: Walls) -> Workspace:
        """An empty directory that only the account behind these walls may enter, once it was handed over."""
        spares = self._spares.get(walls.account)
        directory = spares.pop() if spares else make_directory(self._scratch, execution_id)
        return Workspace(directory=directory, walls=walls)

    async def give_back(self, workspace: Workspace) -> None:
        """Keep it for the next attempt if nothing is left in it, else remove it."""
        account = workspace.walls.account
        spares = self._spares.setdefault(account, [])
        if workspace.left and len(spares) < SPARES_MAX and _is_as_new(workspace.directory, account):
            spares.append(workspace.directory)
        else:
            await remove_directory(workspace.directory)


def _is_as_new(directory: Path, account: Account | None) -> bool:
    """Whether nothing shows that it was used, once our own files are gone."""
    try:
        left = _names_in(directory)
        if not left <= _OURS:
            return False
        for name in left:
            (directory / name).unlink()
        found = os.lstat(directory)
        owner = (os.geteuid(), os.getegid()) if account is None else (account.uid, account.gid)
        private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700  # noqa: PLR2004  for its owner
        return private and (found.st_uid, found.st_gid) == owner and not os.listxattr(directory)
    except OSError:
        return False


def _names_in(directory: Path) -> set[str]:
    with os.scandir(directory) as entries:
        return {each.name for each in entries}


def make_directory(scratch: Path, execution_id: int) -> Path:
    """A new directory that only its owner may enter."""
    return Path(tempfile.mkdtemp(prefix=f"{execution_id}-", dir=scratch))


def hand_over(directory: Path, account: Account | None) -> None:
    """Give the directory, and what was written into it, to the account that the action runs under."""
    if account is None:
        return
    found = os.lstat(directory)
    if (found.st_uid, found.st_gid) == (account.uid, account.gid) and not _names_in(directory):
        return  # It served an earlier attempt of the account.
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            os.chown(Path(folder) / name, account.uid, account.gid, follow_symlinks=False)
    os.chown(directory, account.uid, account.gid)


def write_private(path: Path, content: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path


async def remove_directory(directory: Path) -> None:
    """Most directories hold at most our own files; what a script left may be large, so a thread removes it."""
    if not _remove_if_small(directory):
        await asyncio.shield(asyncio.to_thread(_remove_all, directory))


def _remove_all(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        # A script may have closed a directory to itself, and so to a worker of the same account.
        for folder, _, _ in os.walk(directory):
            for each in os.scandir(folder):
                if each.is_dir(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        Path(each.path).chmod(0o700)
        shutil.rmtree(directory, ignore_errors=True)


def _remove_if_small(directory: Path) -> bool:
    for names in ((), (COMMAND_FILE, PARAMETERS_FILE, OUTPUT_FILE, FAILURE_FILE)):
        for name in names:
            with contextlib.suppress(OSError):
                (directory / name).unlink()
        with contextlib.suppress(OSError):
            directory.rmdir()
            return True
    return False
