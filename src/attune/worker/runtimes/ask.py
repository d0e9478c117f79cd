"""Asks a program a question and waits for its answer, for a bounded time."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.worker.launcher.child import LauncherLost
from attune.worker.launcher.client import Launcher
from attune.worker.launcher.order import Order, Walls

SECONDS_MAX: Final = 20.0
ENVIRONMENT: Final = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}


class NotOffered(Exception):
    """This worker cannot offer a runtime; the message says why, for `attune worker show`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a program said; `code` is None if it could not be started or did not end in time."""

    code: int | None
    said: str


Ask = Callable[[Sequence[str]], Awaitable[Answer]]


async def ask_as_worker(command: Sequence[str]) -> Answer:
    """Run a program to its end under the worker's own account, with nothing in its environment."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
        )
    except OSError as error:
        return Answer(code=None, said=error.strerror or str(error))
    try:
        async with asyncio.timeout(SECONDS_MAX):
            said, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return Answer(code=None, said=f"it did not answer within {SECONDS_MAX:g} s")
    return Answer(code=process.returncode, said=said.decode(errors="replace"))


def ask_behind(launcher: Launcher, walls: Walls) -> Ask:
    """Ask as an action would be run: behind these walls."""

    async def ask(command: Sequence[str]) -> Answer:
        order = Order(words=command, environment=ENVIRONMENT, directory=Path("/"), walls=walls)
        try:
            done = await launcher.probe(order, seconds_max=SECONDS_MAX)
        except LauncherLost:
            return Answer(code=None, said="the launcher ended")
        except OSError as error:
            return Answer(code=None, said=error.strerror or str(error))
        return Answer(code=done.exit_code, said=done.stdout + done.stderr)

    return ask


async def find_closed(path: Path, ask: Ask) -> Path | None:
    """The outermost folder on the way to a file that the account behind `ask` cannot enter."""
    way = await asyncio.to_thread(path.resolve)
    for folder in (*reversed(path.parents), *reversed(way.parents)):
        # Tried rather than computed from the mode, which knows nothing of access control lists.
        if (await ask(["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)])).code != 0:
            return folder
    return None
