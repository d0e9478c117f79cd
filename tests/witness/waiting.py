"""Waiting for a row, a message or a file; never for time to pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.02
DEADLINE_SECONDS = 30.0


async def until(condition: Callable[[], Awaitable[bool]], *, seconds: float = DEADLINE_SECONDS) -> None:
    """Return when the condition holds; fail if it does not in time."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(POLL_SECONDS)
