"""A Node for tests: the one that workers find by themselves, or one unpacked into the cache directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.plugins.report import not_run
from tools.unpack import NODE, CannotUnpack, find_own_node, unpack_node

CURE = "install node 18 or newer with npm, or let pip reach an index and run tools/unpack.py node"


async def brought_node() -> Path | None:
    """What `worker.node` shall name; nothing where workers find one on the search path."""
    return None if await asyncio.to_thread(find_own_node) else await any_node()


async def any_node() -> Path:
    """One that runs here, wherever it is."""
    try:
        return await asyncio.to_thread(unpack_node) / NODE
    except CannotUnpack as error:
        not_run(str(error), cure=CURE)
