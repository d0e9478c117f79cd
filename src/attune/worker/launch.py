"""How a script is started: in a session of its own, bound to the worker's life, and able to gain no privileges."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# Both need util-linux's setpriv; busybox has a program of that name that knows neither.
_GUARDS: Final = ("--pdeathsig", "KILL", "--no-new-privs")
_PROBE_SECONDS: Final = 5.0
PIPE_BYTES: Final = 64 * 1024


def probe_guards() -> tuple[str, ...]:
    """The words to put before a command so that it dies with the worker; none where that does not work."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    chain = (setpriv, *_GUARDS)
    try:
        done = subprocess.run([*chain, "/bin/true"], check=False, capture_output=True, timeout=_PROBE_SECONDS, env={})
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return chain if done.returncode == 0 else ()


def watch_children_by_descriptor() -> None:
    """Let the running loop hear of ended children from the kernel; Python 3.11 would start a thread for each."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.get_event_loop_policy().set_child_watcher(watcher)


async def launch(
    command: Sequence[str], *, guards: Sequence[str], directory: Path, environment: Mapping[str, str], feeds: bool
) -> asyncio.subprocess.Process:
    """Start a command; with `feeds` its standard input is a pipe, else it is empty."""
    # Descriptors above 2 are closed, and there is no code of ours between fork and exec.
    return await asyncio.create_subprocess_exec(
        *guards,
        *command,
        stdin=asyncio.subprocess.PIPE if feeds else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=PIPE_BYTES,
        start_new_session=True,
        cwd=directory,
        env=dict(environment),
    )
