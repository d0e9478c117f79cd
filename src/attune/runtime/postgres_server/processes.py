"""The processes of one data directory: the server that owns it, and backends that outlived theirs."""

from dataclasses import dataclass
from pathlib import Path

import psutil

from attune.runtime.postgres_server.plan import cluster_name

PID_FILE = "postmaster.pid"
PID_FILE_BYTES_MAX = 4096
STATUS_LINE = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class PidFile:
    pid: int
    ready: bool


def read_pid_file(data: Path) -> PidFile | None:
    """What the server wrote about itself; None if there is none, or it is not written completely yet."""
    try:
        with (data / PID_FILE).open(encoding="utf-8", errors="replace") as file:
            lines = file.read(PID_FILE_BYTES_MAX).splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdigit():
        return None
    ready = len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"
    return PidFile(pid=int(lines[0]), ready=ready)


def running_server(data: Path) -> int | None:
    """The process id of the server of this data directory, if it is alive; a stale file does not count."""
    found = read_pid_file(data)
    if found is None:
        return None
    try:
        return found.pid if _serves(psutil.Process(found.pid), data) else None
    except psutil.Error:
        return None


def orphans(data: Path) -> list[int]:
    """Backends of a server that is gone; they still hold its shared memory."""
    found = []
    for process in psutil.process_iter():
        try:
            if _serves(process, data):
                found.append(process.pid)
        except psutil.Error:  # it ended while we looked
            continue
    return found


def remove_stale_locks(data: Path, *, socket_lock: Path) -> None:
    """Take away what names a process id that another program got since: PostgreSQL would take that one for a server.

    The caller has made sure that no process of this data directory is alive.
    """
    found = read_pid_file(data)
    if found is not None and _belongs_to_another_program(found.pid, data):
        (data / PID_FILE).unlink(missing_ok=True)
    try:
        with socket_lock.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(PID_FILE_BYTES_MAX).splitlines()
    except FileNotFoundError:
        return
    # A socket directory may be shared: another server's lock is not ours to judge.
    if lines[1:2] == [str(data)]:
        socket_lock.unlink(missing_ok=True)


def _belongs_to_another_program(pid: int, data: Path) -> bool:
    try:
        return not _serves(psutil.Process(pid), data)
    except psutil.Error:  # nobody has that process id, which PostgreSQL finds out by itself
        return False


def _serves(process: psutil.Process, data: Path) -> bool:
    if not process.name().startswith("postgres") or process.status() == psutil.STATUS_ZOMBIE:
        return False
    try:
        # Every PostgreSQL process works inside its data directory.
        return Path(process.cwd()).samefile(data)
    except OSError:  # its directory is gone, or lies where we cannot look
        return False
    except psutil.AccessDenied:
        # Root in a container without CAP_SYS_PTRACE may read only the command line of other accounts' processes:
        # the server's own names the directory, a backend's title the cluster.
        arguments = process.cmdline()
        return str(data) in arguments or any(cluster_name(data) in each for each in arguments)
