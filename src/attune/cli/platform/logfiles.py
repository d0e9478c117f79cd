"""The log files of the platform's processes: kept to a bounded size, read from their end, followed as they grow."""

import os
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 10 * 1024 * 1024
OLDER_FILES_MAX: Final = 3
FOLLOW_SECONDS: Final = 0.2
CHUNK_BYTES: Final = 65_536
EXCERPT_CHARACTERS_MAX: Final = 600
TAIL_BYTES_MAX: Final = 1024 * 1024


def rotate(log: Path, *, bytes_max: int = FILE_BYTES_MAX) -> bool:
    """Set a file that grew too large aside, keeping a few older ones; whether it was.

    Copied and cut, not renamed: the process that writes holds the file open, in append mode. What it writes between
    the two steps is lost, which is the price of needing nothing from the writer.
    """
    try:
        if log.stat().st_size <= bytes_max:
            return False
    except FileNotFoundError:
        return False
    for number in range(OLDER_FILES_MAX - 1, 0, -1):
        older = _older(log, number)
        if older.exists():
            older.replace(_older(log, number + 1))
    shutil.copyfile(log, _older(log, 1))
    _older(log, 1).chmod(0o600)
    os.truncate(log, 0)
    return True


def tail(log: Path, *, lines_max: int) -> list[str]:
    """The last lines of a file; none if there is no such file."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
    except FileNotFoundError:
        return []
    return list(deque(text.splitlines(), maxlen=lines_max))


def excerpt(log: Path, *, lines_max: int) -> list[str]:
    """The last lines for a person; of a long one its begin and its end, where a traceback says what happened."""
    half = EXCERPT_CHARACTERS_MAX // 2
    return [
        line if len(line) <= EXCERPT_CHARACTERS_MAX else f"{line[:half]} … {line[-half:]}"
        for line in tail(log, lines_max=lines_max)
    ]


def follow(logs: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """What is added to the files, as it comes, until the caller stops; a file that was cut is read from its start."""
    places = {log: _size(log) for log in logs}
    while True:
        for log, place in places.items():
            begin = place if place <= _size(log) else 0
            added = _read_from(log, begin)
            places[log] = begin + len(added)
            if added:
                yield log, added
        time.sleep(FOLLOW_SECONDS)


def _read_from(log: Path, place: int) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(place)
            return file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def _older(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
