"""The files of a pack folder, and the digest that names exactly this content.

Regular files only: a link could lead out of the folder, a device or a pipe could never end.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from attune.packs.problems import BadPack, Problem

FILES_MAX = 5000
FILE_BYTES_MAX = 50 * 1024 * 1024
PACK_BYTES_MAX = 200 * 1024 * 1024
FOLDER_DEPTH_MAX = 32

# What tools leave behind in a folder is no part of the pack.
IGNORED_NAMES = frozenset({".git", ".hg", ".venv", "__pycache__", "node_modules", ".DS_Store"})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PackFile:
    """One regular file, named by its path below the pack's folder."""

    path: str
    size: int
    executable: bool


def list_files(folder: Path) -> tuple[PackFile, ...]:
    """Every file of a pack in the order of their paths, or `BadPack` if something else lies among them."""
    if not folder.is_dir():
        raise BadPack([Problem(file=str(folder), message="is not a folder")])
    found = list(islice(_walk(folder, "", FOLDER_DEPTH_MAX), FILES_MAX + 1))
    files = [each for each in found if isinstance(each, PackFile)]
    problems = [each for each in found if isinstance(each, Problem)]
    if len(found) > FILES_MAX:
        problems.append(Problem(file=".", message=f"the pack has more than {FILES_MAX} files"))
    if sum(file.size for file in files) > PACK_BYTES_MAX:
        problems.append(Problem(file=".", message=f"the files are larger than {PACK_BYTES_MAX} bytes together"))
    if problems:
        raise BadPack(problems)
    return tuple(sorted(files))


def digest_files(folder: Path, files: tuple[PackFile, ...]) -> str:
    """A SHA-256 over path, executable bit and content of each file; the same content has the same digest anywhere."""
    whole = hashlib.sha256()
    for file in sorted(files):
        with (folder / file.path).open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        # Each entry ends in a newline and no path contains one, so that two lists never read the same.
        whole.update(f"{content} {'x' if file.executable else '-'} {file.path}\n".encode())
    return whole.hexdigest()


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[PackFile | Problem]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name not in IGNORED_NAMES)
    for name in names:
        path = prefix + name
        mode = (folder / name).lstat()
        if not _is_plain(name):
            yield Problem(file=repr(path), message="the file name has characters that are not printable UTF-8")
        elif stat.S_ISDIR(mode.st_mode):
            if depth == 0:
                yield Problem(file=path, message=f"folders are nested deeper than {FOLDER_DEPTH_MAX}")
            else:
                yield from _walk(folder / name, path + "/", depth - 1)
        elif not stat.S_ISREG(mode.st_mode):
            what = "a symbolic link" if stat.S_ISLNK(mode.st_mode) else "no regular file"
            yield Problem(file=path, message=f"is {what}; a pack holds only regular files and folders")
        elif mode.st_size > FILE_BYTES_MAX:
            yield Problem(file=path, message=f"is larger than {FILE_BYTES_MAX} bytes")
        else:
            yield PackFile(path=path, size=mode.st_size, executable=bool(mode.st_mode & stat.S_IXUSR))


def _is_plain(name: str) -> bool:
    return name.isprintable() and not any("\ud800" <= character <= "\udfff" for character in name)
