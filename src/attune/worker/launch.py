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
    if sys.version_info >= (3, 12) or not hasattr(os, "pidfd_open"):
        return
    policy = asyncio.get_event_loop_policy()
    current = policy.get_child_watcher()
    if isinstance(current, asyncio.PidfdChildWatcher) and current.is_active():
        return
    watcher = asyncio.PidfdChildWatcher()
    watcher.attach_loop(asyncio.get_running_loop())
    policy.set_child_watcher(watcher)


class Child:
    """A started process: its streams, and its end as soon as it comes.

    asyncio's own `Process.wait` waits for the streams too, and those may be held open by what the process left behind.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: "_Protocol") -> None:
        assert protocol.stdout is not None  # noqa: S101  both are pipes
        assert protocol.stderr is not None  # noqa: S101  as above
        self._transport = transport
        self.pid = transport.get_pid()
        self.stdin = protocol.stdin
        self.stdout = protocol.stdout
        self.stderr = protocol.stderr
        self.exited = protocol.exited

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self._transport.get_returncode()

    def close(self) -> None:
        """Let go of the streams, ended or not."""
        self._transport.close()


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(limit=PIPE_BYTES, loop=loop)
        self.exited: asyncio.Future[None] = loop.create_future()

    def process_exited(self) -> None:
        super().process_exited()
        if not self.exited.done():
            self.exited.set_result(None)


async def launch(
    command: Sequence[str], *, guards: Sequence[str], directory: Path, environment: Mapping[str, str], feeds: bool
) -> Child:
    """Start a command; with `feeds` its standard input is a pipe, else it is empty."""
    # Descriptors above 2 are closed, and there is no code of ours between fork and exec.
    transport, protocol = await asyncio.get_running_loop().subprocess_exec(
        _Protocol,
        *guards,
        *command,
        stdin=asyncio.subprocess.PIPE if feeds else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        cwd=directory,
        env=dict(environment),
    )
    return Child(transport, protocol)
