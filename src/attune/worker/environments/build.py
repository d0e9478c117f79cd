"""The commands that fill an environment: marked like everything the worker starts, and quiet unless they fail."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attune.runtime.redact import redact_text
from attune.worker.processes import MARKER_VARIABLE, Children, Marking

LINES_SHOWN_MAX: Final = 12
LINE_CHARACTERS_MAX: Final = 400
# Others shall read what is built, and write nothing of it.
UMASK: Final = 0o022

# A token may stand alone before the "@" of an index's address.
_USER_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+@")
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")


class BuildFailed(Exception):
    """An environment cannot be made; the message holds the last lines of whoever tried."""


class Builder:
    """Runs build commands under the worker's own account."""

    def __init__(self, marking: Marking, children: Children) -> None:
        # The guardian finds it by the marker and ends it with a killed worker.
        self._marked = {MARKER_VARIABLE: f"{marking.prefix}environment/"}
        self._children = children

    async def run(self, command: Sequence[str], environment: Mapping[str, str], *, directory: Path) -> str:
        """Run to the end; returns what it printed, or raises BuildFailed with the end of that."""
        process = await self._start(command, {**environment, **self._marked}, directory)
        try:
            printed, _ = await process.communicate()
        finally:
            await self._see_off(process)
        text = printed.decode(errors="replace")
        if process.returncode:
            raise BuildFailed(f"{Path(command[0]).name} failed: {last_lines(text)}")
        return text

    async def _start(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> asyncio.subprocess.Process:
        self._children.starting += 1
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                umask=UMASK,
                cwd=directory,
                env=environment,
            )
            self._children.own.add(process.pid)
        except OSError as error:
            raise BuildFailed(f"{command[0]} cannot be started: {error.strerror}") from None
        finally:
            self._children.starting -= 1
        return process

    async def _see_off(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        self._children.own.discard(process.pid)


def last_lines(text: str) -> str:
    """The end of what a tool printed, without credentials and colours."""
    plain = _USER_IN_URL.sub("****@", redact_text(_ANSI.sub("", text)))
    lines = [line.rstrip()[:LINE_CHARACTERS_MAX] for line in plain.splitlines() if line.strip()]
    return "\n".join(lines[-LINES_SHOWN_MAX:]) or "it said nothing"
