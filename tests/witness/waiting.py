"""Waiting for a row, a message or a file; never for time to pass."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

POLL_SECONDS = 0.02
DEADLINE_SECONDS = 30.0


async def until(condition: Callable[[], Awaitable[bool]], *, seconds: float = DEADLINE_SECONDS) -> None:
    """Return when the condition holds; fail if it does not in time."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(POLL_SECONDS)


def cancel_when_told_to_end() -> None:
    """Whoever ends a program by a signal wants what it started to end too."""
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
