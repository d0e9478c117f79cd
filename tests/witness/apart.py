"""Loops beside the one that all tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def in_a_thread(function: Callable[[], T]) -> T:
    """Call in a thread of its own: a second loop in the main thread would take the shared one's children from it."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(function).result()


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to its end in a loop and a thread of its own."""
    return in_a_thread(lambda: asyncio.run(coroutine))
