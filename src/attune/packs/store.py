"""Installed packs on disk, one folder for each content: `<root>/<pack>/<digest>/`.

A folder appears complete or not at all, and never changes afterwards, so that an execution that was requested with
an older content still finds it.
"""

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

from attune.domain.refs import parse_pack_ref
from attune.packs.files import FILE_BYTES_MAX, PackFile, list_files
from attune.packs.problems import BadPack, Problem
from attune.packs.read import read_pack
from attune.runtime.failpoints import failpoint

STAGING_PREFIX = ".staging-"
_FOLDER_MODE = 0o755
_FILE_MODE = 0o644
_PROGRAM_MODE = 0o755


def stage(folder: Path, store_root: Path) -> Path:
    """Copy a sound pack into the store and say where it lies; the same content again changes nothing."""
    store_root.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=store_root))
    try:
        _copy(folder, list_files(folder), staging)
        # The copy is what is checked and digested: the original may change meanwhile.
        reading = read_pack(staging)
        return _publish(staging, content_folder(store_root, reading.definition.ref, reading.digest))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def content_folder(store_root: Path, pack: str, digest: str) -> Path:
    """Where a pack's content lies, whether or not it is there."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"not a digest: {digest!r}")
    return store_root / parse_pack_ref(pack) / digest


def _copy(folder: Path, files: tuple[PackFile, ...], staging: Path) -> None:
    for file in files:
        target = staging / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_read_regular(folder / file.path, file.path))
        target.chmod(_PROGRAM_MODE if file.executable else _FILE_MODE)
        _flush(target)
    # Set outright, because a private umask would keep the worker's unprivileged children out.
    for directory, _, _ in os.walk(staging):
        Path(directory).chmod(_FOLDER_MODE)


def _read_regular(path: Path, name: str) -> bytes:
    # Not following links again: one may have taken the file's place since the folder was listed.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadPack([Problem(file=name, message=f"cannot be read: {error.strerror}")]) from error
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise BadPack([Problem(file=name, message=f"is larger than {FILE_BYTES_MAX} bytes")])
    return content


def _publish(staging: Path, target: Path) -> Path:
    target.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    target.parent.chmod(_FOLDER_MODE)
    failpoint("pack.staged.before_rename")
    try:
        staging.rename(target)
    except OSError as error:
        # A folder that has files is never replaced: the same content is already there, perhaps since a moment ago.
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    _flush(target.parent)
    return target


def _flush(path: Path) -> None:
    """Make sure that a power cut after the pack was recorded cannot leave empty files behind."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
