"""Finds and ends the processes of a home, whoever started them and whether or not a supervisor still lives.

Every process of a platform carries ATTUNE_HOME and ATTUNE_PROCESS in its environment. A shell may carry the first,
so only both together are a mark.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

if TYPE_CHECKING:
    from attune.runtime.home import Home

HOME_VARIABLE: Final = "ATTUNE_HOME"
MARK_VARIABLE: Final = "ATTUNE_PROCESS"
SUPERVISOR_VARIABLE: Final = "ATTUNE_SUPERVISOR_PID"
SUPERVISOR: Final = "supervisor"
KILL_SECONDS_MAX: Final = 5.0


def marked_environment(home: Path, name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process of this home."""
    return {
        **given,
        HOME_VARIABLE: str(home),
        MARK_VARIABLE: name,
        # A process title is otherwise written over the environment, and the mark with it.
        "SPT_NOENV": "1",
    }


def find_marked(home: "Home") -> list[psutil.Process]:
    """Processes of this home, without the one that asks and those it descends from."""
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [process for process in psutil.process_iter() if process.pid not in spared and _is_marked(process, home)]


def with_descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes and everything below them: actions run without the mark."""
    found: dict[int, psutil.Process] = {}
    for process in processes:
        found[process.pid] = process
        with contextlib.suppress(psutil.Error):
            found.update({each.pid: each for each in process.children(recursive=True)})
    found.pop(os.getpid(), None)
    return list(found.values())


def end(
    processes: list[psutil.Process], *, ask: Iterable[psutil.Process], grace_seconds: float
) -> list[psutil.Process]:
    """Ask some of them to end, wait for all, kill what does not; what is left even so."""
    for process in ask:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    wait_until(lambda: not any(map(is_alive, processes)), seconds_max=grace_seconds)
    for process in filter(is_alive, processes):
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_until(lambda: not any(map(is_alive, processes)), seconds_max=KILL_SECONDS_MAX)
    return [process for process in processes if is_alive(process)]


def was_asked(process: psutil.Process) -> bool:
    """Whether the kernel has told it already, because its supervisor died; a second request would force it."""
    try:
        supervisor = process.environ().get(SUPERVISOR_VARIABLE)
        return supervisor is not None and supervisor != str(process.ppid())
    except psutil.Error:
        return True


def is_by_hand(process: psutil.Process) -> bool:
    """Whether it runs without a supervisor and is none itself."""
    try:
        environment = process.environ()
    except psutil.Error:
        return False
    return SUPERVISOR_VARIABLE not in environment and environment.get(MARK_VARIABLE) != SUPERVISOR


def is_supervisor(process: psutil.Process) -> bool:
    try:
        return process.environ().get(MARK_VARIABLE) == SUPERVISOR
    except psutil.Error:
        return False


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs; one that ended and waits for its parent to notice does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def wait_until(holds: Callable[[], bool], *, seconds_max: float, every_seconds: float = 0.05) -> bool:
    """Look again and again; whether it came true in time."""
    deadline = time.monotonic() + seconds_max
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_seconds)
    return True


def _is_marked(process: psutil.Process, home: "Home") -> bool:
    try:
        if not is_alive(process):
            return False
        environment = process.environ()
    except (psutil.Error, OSError):  # Gone, or another account's.
        return False
    carried = environment.get(HOME_VARIABLE)
    return MARK_VARIABLE in environment and carried is not None and _same(Path(carried), home.root)


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
