"""Owns every task of a service: what crashes ends the service or is restarted, and signals stop it.

A crash is logged once, here. A task that ends before it was asked to counts as a crash: a service that
silently stopped listening is worse than one that died.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

import structlog

from attune.runtime.clock import draw, jittered_backoff, monotonic

FORCED_EXIT_SECONDS: Final = 5.0  # After a second signal; then the process leaves without cleaning up.
EXIT_OK: Final = 0
EXIT_CRASHED: Final = 1
EXIT_SIGNAL_OFFSET: Final = 128

Run: TypeAlias = Callable[[], Awaitable[None]]


class TaskCrashed(Exception):
    """A task of the service ended by an error nobody handled; already logged."""


class CannotStart(Exception):
    """The service cannot run here, for a reason an operator can mend; its message is all they need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How a task that may fail is started again; at `crashes_max` in a row the service ends."""

    first_seconds: float = 0.5
    ceiling_seconds: float = 30.0
    healthy_after_seconds: float = 60.0
    crashes_max: int = 100


class Tasks:
    """The named tasks of one service; leaving the block cancels them and waits until they are gone."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        for task in tuple(self._running):
            task.cancel()
        await self._group.__aexit__(kind, error, trace)

    def start(
        self, name: str, run: Run, *, restart: Restart | None = None, may_end: bool = False
    ) -> asyncio.Task[None]:
        """Start a task. `may_end`: returning is fine. `restart`: a crash starts it again after a pause."""
        if restart is None:
            task = self._group.create_task(self._watch(name, run, may_end=may_end), name=name)
        else:
            task = self._group.create_task(self._repeat(name, run, restart, may_end=may_end), name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _watch(self, name: str, run: Run, *, may_end: bool) -> None:
        try:
            await self._run_to_end(name, run, may_end=may_end)
        except Exception as error:
            self._log.critical("task.crashed", task=name, exc_info=error)
            raise TaskCrashed(name) from error

    async def _repeat(self, name: str, run: Run, restart: Restart, *, may_end: bool) -> None:
        crashes = 0
        while True:
            started = monotonic()
            try:
                return await self._run_to_end(name, run, may_end=may_end)
            except Exception as error:
                crashes = 1 if monotonic() - started >= restart.healthy_after_seconds else crashes + 1
                if crashes >= restart.crashes_max:
                    self._log.critical("task.crashed", task=name, crashes=crashes, exc_info=error)
                    raise TaskCrashed(name) from error
                pause = jittered_backoff(
                    crashes, first_seconds=restart.first_seconds, ceiling_seconds=restart.ceiling_seconds, drawn=draw()
                )
                self._log.error("task.restarting", task=name, crashes=crashes, pause_seconds=pause, exc_info=error)
            await asyncio.sleep(pause)

    async def _run_to_end(self, name: str, run: Run, *, may_end: bool) -> None:
        try:
            await run()
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and not this.cancelling():
                # Something inside was cancelled, not this task; the group would let it end unnoticed.
                raise RuntimeError(f"task {name} ended by a cancellation nobody asked for") from None
            raise
        if not may_end and not self.stop.is_set():
            raise RuntimeError(f"task {name} ended although nobody asked it to")


def run_service(
    main: Callable[[Tasks], Awaitable[None]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    forced_exit_seconds: float = FORCED_EXIT_SECONDS,
) -> int:
    """Run a service until it ends, crashes or is told to stop; returns the exit code.

    The first SIGTERM or SIGINT sets `tasks.stop`, the second cancels `main`, and if that takes too
    long the process leaves at once.
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_serve(main, forced_exit_seconds))


async def _serve(main: Callable[[Tasks], Awaitable[None]], forced_exit_seconds: float) -> int:
    signals = _Signals(body=asyncio.current_task(), forced_exit_seconds=forced_exit_seconds)
    try:
        async with Tasks() as tasks:
            signals.listen(tasks.stop)
            await main(tasks)
    except* TaskCrashed:
        return_code = EXIT_CRASHED
    except* CannotStart as group:
        for error in _leaves(group):
            structlog.get_logger().critical("service.cannot_start", reason=str(error))
        return_code = EXIT_CRASHED
    except* asyncio.CancelledError:
        return_code = EXIT_SIGNAL_OFFSET + (signals.last or signal.SIGINT)
    except* Exception as group:  # noqa: BLE001  the top of the process
        structlog.get_logger().critical("service.crashed", exc_info=group)
        return_code = EXIT_CRASHED
    else:
        return_code = EXIT_OK
    finally:
        signals.ignore()
    return return_code


def _leaves(group: BaseExceptionGroup[CannotStart]) -> Iterator[BaseException]:
    """The errors themselves, however many groups of tasks they came through."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


class _Signals:
    """Counts requests to stop: please, now, at once."""

    def __init__(self, *, body: "asyncio.Task[int] | None", forced_exit_seconds: float) -> None:
        self._body = body
        self._forced_exit_seconds = forced_exit_seconds
        self._stop: asyncio.Event | None = None
        self.last: int | None = None

    def listen(self, stop: asyncio.Event) -> None:
        self._stop = stop
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._received, number)

    def ignore(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _received(self, number: int) -> None:
        log = structlog.get_logger()
        if self._stop is not None and not self._stop.is_set():
            log.info("service.stopping", signal=signal.Signals(number).name)
            self._stop.set()
            return
        log.warning("service.forced", signal=signal.Signals(number).name)
        if self.last is None and self._body is not None:
            self._body.cancel()
            asyncio.get_running_loop().call_later(self._forced_exit_seconds, os._exit, EXIT_SIGNAL_OFFSET + number)
        self.last = number
