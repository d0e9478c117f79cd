"""Runs a coroutine of the worker itself for an attempt: stopping the attempt cancels it at once."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from attune.worker.runners.protocol import Attempt, StopReason

T = TypeVar("T")


class Stopped(Exception):
    """The attempt was ended early."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


async def until_stopped(attempt: Attempt, work: Awaitable[T]) -> T:
    """The result of the work; raises Stopped if the attempt is stopped first."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  a coroutine that runs is in a task
    attempt.stop.listen(lambda _reason: task.cancel())
    try:
        return await work
    except asyncio.CancelledError:
        if attempt.stop.reason is None:
            raise  # Not the attempt is stopped, but the whole worker.
        while task.uncancel():
            pass  # A more urgent reason cancels again.
        raise Stopped(attempt.stop.reason) from None
    finally:
        attempt.stop.forget_listener()
