"""Process trees of actions: how they are marked, found again, and ended to the last one.

A script may leave its process group, its session and its parent, but not the environment it was started with: every
process of an attempt carries the attempt's marker there.
"""

import asyncio
import contextlib
import ctypes
import functools
import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from attune.runtime.clock import monotonic

MARKER_VARIABLE: Final = "ATTUNE_EXECUTION_MARKER"
# After KILL a process is gone in milliseconds, unless it hangs inside the kernel.
GONE_SECONDS_MAX: Final = 10.0
_LOOK_SECONDS: Final = 0.02
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36


@functools.lru_cache(maxsize=8)
def _digest(home: Path) -> str:
    """Asked for at every start of a process, and resolving a path asks the file system."""
    return hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking:
    """The markers of one worker: home and name say whose they are, the instance which start of it."""

    home: Path
    worker: str
    instance: UUID

    @property
    def worker_prefix(self) -> str:
        """The beginning of the markers of every start of this worker."""
        return f"{_digest(self.home)}/{self.worker}/"

    @property
    def prefix(self) -> str:
        """The beginning of the markers of this start."""
        return f"{self.worker_prefix}{self.instance}/"

    def marker(self, execution_id: int, attempt: int) -> str:
        return f"{self.prefix}{execution_id}.{attempt}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: int
    parent: int
    session: int
    marker: str


def find_marked(prefix: str) -> set[int]:
    """Every living process whose marker begins with this."""
    return {process.pid for process in _list_processes() if process.marker.startswith(prefix)}


def find_tree(root: int, marker: str, *, root_ended: bool) -> set[int]:
    """Every living process of an attempt: marked, in the root's session, or descended from one of those."""
    processes = list(_list_processes())
    found = {one.pid for one in processes if one.marker == marker}
    # Once the root is gone, a living process with its number is a stranger, and so is that one's session.
    reused = root_ended and any(one.pid == root and one.marker != marker for one in processes)
    if not reused:
        found |= {one.pid for one in processes if root in (one.pid, one.session)}
    while more := {one.pid for one in processes if one.parent in found} - found:
        found |= more
    return found


def signal_all(pids: set[int], number: int, *, first: int = 0) -> None:
    """Parents before children, as far as numbers tell: a script whose child was killed would go on to its next line."""
    for pid in sorted(pids, key=lambda each: (each != first, each)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


async def end_all(find: Callable[[], set[int]]) -> bool:
    """Kill whatever `find` finds until it finds nothing; False if something outlives even that."""
    deadline = monotonic() + GONE_SECONDS_MAX
    while found := find():
        # Looking again after each round, because a process may have been forked between looking and killing.
        signal_all(found, signal.SIGKILL)
        if monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


def become_subreaper() -> None:
    """Inherit what scripts leave behind, instead of losing sight of it to process 1."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def hide_memory() -> None:
    """Let no other process of this account look into this one, which holds the platform's secrets."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class Children:
    """The worker's own children, so that those it inherits can be told from them."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        # How many are being started: already children, but not yet known by number.
        self.starting = 0

    def inherited(self) -> set[int]:
        """Orphans that scripts left behind, dead ones included."""
        return set() if self.starting else _list_children() - self.own

    def reap(self) -> None:
        """Take leave of dead orphans; the loop waits only for children it started itself."""
        for pid in self.inherited():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _list_children() -> set[int]:
    own = os.getpid()
    try:
        content = Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii")
    except OSError:  # A kernel without this file: then they are looked for one by one.
        return {one.pid for one in _list_processes() if one.parent == own}
    return {int(pid) for pid in content.split()}


def marker_of(pid: int) -> str:
    """The marker a process carries; empty if it has none or is gone."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    key = f"{MARKER_VARIABLE}=".encode()
    for entry in environment.split(b"\0"):
        if entry.startswith(key):
            return entry[len(key) :].decode(errors="replace")
    return ""


def count_threads(uid: int) -> int:
    """How many threads an account has; the system's limit on processes counts these."""
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208  as below
        if name.isdecimal():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116  as below
                    count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208  as below
    return count


def _list_processes() -> Iterator[_Process]:
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208  paths for hundreds of names cost more than reading them
        if not name.isdecimal() or int(name) == own:
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
            # The name in parentheses may hold anything; what follows the last one is in columns.
            state, parent, _group, session = stat[stat.rindex(")") + 2 :].split()[:4]
            if state not in "ZX":
                yield _Process(pid=int(name), parent=int(parent), session=int(session), marker=marker_of(int(name)))
