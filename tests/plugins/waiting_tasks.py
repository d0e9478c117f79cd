"""A test that ran out of time says what its tasks were waiting for: the loop's own stack shows only the loop."""

from __future__ import annotations

import asyncio
from asyncio import tasks as asyncio_tasks
from collections.abc import Generator, Iterable

import pytest

TIMEOUT = "from pytest-timeout"
DEPTH_MAX = 50


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None and TIMEOUT in str(call.excinfo.value):
        report.sections.append(("what tasks waited for", describe(pending_tasks())))
    return report


def pending_tasks() -> list[asyncio.Task[object]]:
    """Of every loop: by now the one that ran out of time does not run any more."""
    every: Iterable[asyncio.Task[object]] = getattr(asyncio_tasks, "_all_tasks", ())
    return [task for task in list(every) if not task.done()]


def describe(tasks: Iterable[asyncio.Task[object]]) -> str:
    return "\n".join(line for task in tasks for line in (task.get_name(), *awaited_by(task.get_coro())))


def awaited_by(awaitable: object) -> list[str]:
    """From the task's own coroutine down to the future it waits for; a task itself knows only the first."""
    lines: list[str] = []
    while awaitable is not None and len(lines) < DEPTH_MAX:
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "ag_frame", None)
        where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" if frame else repr(awaitable)
        lines.append(f"    {where}")
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "ag_await", None)
    return lines
