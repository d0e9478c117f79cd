"""One server process, as a direct child, and the log file it writes."""

import os
import subprocess
from pathlib import Path

from attune.runtime.postgres_server.account import Account, identity
from attune.runtime.postgres_server.binaries import Binaries
from attune.runtime.postgres_server.places import make_directories
from attune.runtime.postgres_server.plan import ServerPlan
from attune.runtime.postgres_server.tuning import settings_of

# Looked at before each start; one older file is kept.
LOG_BYTES_MAX = 16 * 1024 * 1024
LOG_TAIL_BYTES = 2000


def spawn(plan: ServerPlan, *, binaries: Binaries, account: Account) -> subprocess.Popen[bytes]:
    command: list[str | Path] = [binaries.program("postgres"), "-D", plan.data]
    for name, value in settings_of(plan).items():
        command += ["-c", f"{name}={value}"]
    log = os.open(plan.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # A session of its own: Ctrl-C in a terminal must not stop the database before its clients.
        return subprocess.Popen(
            command,
            cwd="/",
            # The mark by which every process of a home can be told.
            env=binaries.environment() | {"ATTUNE_HOME": str(plan.home)},
            start_new_session=True,
            stderr=log,
            stdin=subprocess.DEVNULL,
            stdout=log,
            **identity(account),
        )
    finally:
        os.close(log)


def open_log(log: Path) -> int:
    """Make room for the log, setting a large one aside; where the next start's lines begin."""
    make_directories(log.parent)
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size <= LOG_BYTES_MAX:
        return size
    log.replace(log.with_name(f"{log.name}.1"))
    return 0


def tail_of(log: Path, *, begin: int) -> str:
    """The last lines written since `begin`."""
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(begin, end - LOG_TAIL_BYTES))
        return file.read(LOG_TAIL_BYTES).decode(errors="replace").strip()
