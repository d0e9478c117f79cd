"""Ends everything that still runs in a home when no supervisor is there to do it."""

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import psutil

from attune.cli.exits import CommandFailed
from attune.cli.platform.instance import owner
from attune.cli.platform.processes import end, find_marked, is_supervisor, was_asked, with_descendants
from attune.runtime.home import Home, HomeUnusable, embedded_server

if TYPE_CHECKING:
    from attune.runtime.settings import Settings


def end_leftovers(
    settings: "Settings", home: Home, *, grace_seconds: float, also: Iterable[psutil.Process] = ()
) -> int:
    """End services first, for they still write to the database, and the database last; how many were found.

    Only services are asked to end: they decide what becomes of the actions below them.
    """
    marked = find_marked(home)
    if owner(home) == os.getpid():
        # Another supervisor does not hold the home; it waits for us, or is about to learn that it comes second.
        marked = [process for process in marked if not is_supervisor(process)]
    found = with_descendants([*marked, *also])
    ask = [process for process in marked if not was_asked(process)]
    left = end(found, ask=ask, grace_seconds=grace_seconds) if found else []
    if left:
        listed = ", ".join(str(process.pid) for process in left)
        raise CommandFailed(f"these processes of {home.root} do not end: {listed}. End them by hand")
    ended = len(found) + asyncio.run(_end_database(settings, home))
    home.url.unlink(missing_ok=True)  # Left by a supervisor that was killed; nothing answers there now.
    return ended


async def _end_database(settings: "Settings", home: Home) -> int:
    try:
        server = embedded_server(settings, home)
    except HomeUnusable:
        return 0  # Nothing was ever started here.
    if server is None or server.running_pid() is None:
        return 0
    await server.stop()
    return 1
