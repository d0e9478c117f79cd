"""The private directory of one attempt: made for it, written before it starts, removed when it has ended."""

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from attune.worker.launcher.order import Account

COMMAND_FILE: Final = "command"
PARAMETERS_FILE: Final = "parameters"
OUTPUT_FILE: Final = "output.json"
# Why it failed, in the words of the program that runs it.
FAILURE_FILE: Final = "failure.json"


def make_directory(scratch: Path, execution_id: int) -> Path:
    """A new directory that only its owner may enter."""
    return Path(tempfile.mkdtemp(prefix=f"{execution_id}-", dir=scratch))


def hand_over(directory: Path, account: Account | None) -> None:
    """Give the directory, and what was written into it, to the account that the action runs under."""
    if account is None:
        return
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
