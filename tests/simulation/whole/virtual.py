"""Virtual time: a heap of things to do, processes that can be killed or stopped, and coroutines that run in them.

Nothing here waits. A run with the same dice does the same things in the same order, whatever the machine does.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from random import Random
from typing import Any, Final, Protocol

Call = Callable[[], object]
Arrange = Callable[["Task"], None]


class Waker(Protocol):
    """Wakes a task from one wait, if it still waits."""

    def __call__(self, delay: float = 0.0, error: BaseException | None = None) -> None: ...


class Loop:
    """What is to be done and when, and who is doing it right now."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.now = 0.0
        self.steps = 0
        self.current: Process | None = None
        self._heap: list[tuple[float, int, Call]] = []
        self._number = 0

    def at(self, delay: float, call: Call) -> None:
        self._number += 1
        heapq.heappush(self._heap, (self.now + delay, self._number, call))

    def step(self) -> bool:
        """Do the next thing; False if there is nothing left."""
        if not self._heap:
            return False
        self.now, _, call = heapq.heappop(self._heap)
        self.steps += 1
        call()
        return True

    def run_until(self, moment: float, *, done: Callable[[], bool] = lambda: False) -> None:
        """Until then, or until it is done."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= moment and not done():
            self.now, _, call = pop(heap)
            self.steps += 1
            call()
        if not done():
            self.now = max(self.now, moment)


# The loop that virtual sleeping, events and timers belong to; one run at a time.
_running: list[Loop] = []


def running_loop() -> Loop:
    return _running[-1]


def enter(loop: Loop) -> None:
    _running.append(loop)


def leave() -> None:
    _running.pop()


class Process:
    """What a kill ends and a stop suspends: a few coroutines and timers."""

    def __init__(self, loop: Loop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.stopped = False
        # Whether the network to the database is cut.
        self.cut = False
        self.crashed: Callable[[Process, BaseException], None] = _raise
        self._deferred: list[Call] = []
        self._tasks: dict[Task, None] = {}

    def later(self, delay: float, call: Call) -> None:
        self.loop.at(delay, partial(self._do, call))

    def _do(self, call: Call) -> None:
        if not self.alive:
            return
        if self.stopped:
            self._deferred.append(call)
            return
        loop = self.loop
        before, loop.current = loop.current, self
        try:
            call()
        finally:
            loop.current = before

    def start(self, coroutine: Coroutine[Any, Any, None]) -> Task:
        task = Task(self, coroutine)
        self._tasks[task] = None
        self.later(0.0, task.step)
        return task

    def forget(self, task: Task) -> None:
        self._tasks.pop(task, None)

    def kill(self) -> None:
        """At this instant, wherever it is."""
        self.alive = False
        for task in list(self._tasks):
            task.close()
        self._tasks.clear()
        self._deferred.clear()

    def stop(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        self.stopped = False
        deferred, self._deferred = self._deferred, []
        for call in deferred:
            self.later(0.0, call)


def _raise(_process: Process, error: BaseException) -> None:
    raise error


class Ask:
    """What a coroutine awaits: it says how the task is to be woken."""

    __slots__ = ("_arrange",)

    def __init__(self, arrange: Arrange) -> None:
        self._arrange = arrange

    def __await__(self) -> Generator[Arrange, None, None]:
        yield self._arrange


class Cancelled(BaseException):
    """Thrown into a task that is not wanted any more."""


class Task:
    """One coroutine of a process."""

    def __init__(self, process: Process, coroutine: Coroutine[Any, Any, None]) -> None:
        self.process = process
        self._coroutine = coroutine
        self.finished = False
        self._callbacks: list[Callable[[Task], object]] = []
        # Who is to be woken counts turns: a wake-up for an earlier wait is too late.
        self.turn = 0

    def wake(self, delay: float = 0.0, error: BaseException | None = None) -> None:
        """End what it waits for now, and nothing it will wait for later."""
        self._wake(self.turn, delay, error)

    def waker(self) -> Waker:
        return partial(self._wake, self.turn)

    def _wake(self, turn: int, delay: float = 0.0, error: BaseException | None = None) -> None:
        self.process.later(delay, partial(self._step_if, turn, error))

    def _step_if(self, turn: int, error: BaseException | None) -> None:
        if self.turn == turn:
            self.step(error)

    def step(self, error: BaseException | None = None) -> None:
        if self.finished:
            return
        self.turn += 1
        try:
            arrange = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration:
            self._finish()
        except Cancelled:
            self._finish()
        except BaseException as crash:  # noqa: BLE001 — whoever watches the process judges it
            self._finish()
            self.process.crashed(self.process, crash)
        else:
            arrange(self)

    def close(self) -> None:
        self.finished = True
        self._coroutine.close()

    def cancel(self) -> None:
        """Whatever it waits for when its turn comes, which may be something else than now."""
        if not self.finished:
            self.process.later(0.0, lambda: self.step(Cancelled()))

    def add_done_callback(self, callback: Callable[[Task], object]) -> None:
        self._callbacks.append(callback)

    def _finish(self) -> None:
        self.finished = True
        self.process.forget(self)
        for callback in self._callbacks:
            callback(self)


async def sleep(seconds: float) -> None:
    await Ask(lambda task: task.wake(seconds))


class VirtualEvent(asyncio.Event):
    """An event whose waiters are tasks of virtual processes."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[Waker] = []

    def set(self) -> None:
        super().set()
        sleepers, self._sleepers = self._sleepers, []
        for wake in sleepers:
            wake()

    async def wait(self) -> Any:  # noqa: ANN401 — always true, as the type of the original says
        while not self.is_set():
            await Ask(lambda task: self._sleepers.append(task.waker()))
        return True

    async def wait_for(self, seconds: float) -> None:
        """Until it is set, or this long."""

        def arrange(task: Task) -> None:
            self._sleepers.append(task.waker())
            task.wake(seconds)

        if not self.is_set():
            await Ask(arrange)


class _Timer:
    def __init__(self, call: Call) -> None:
        self._call: Call | None = call

    def fire(self) -> None:
        if self._call is not None:
            self._call()

    def cancel(self) -> None:
        self._call = None


class VirtualAsyncio:
    """As much of the module as the services use, in virtual time."""

    Event: Final = VirtualEvent
    sleep: Final = staticmethod(sleep)

    @staticmethod
    def create_task(coroutine: Coroutine[Any, Any, None], *, name: str = "") -> Task:  # noqa: ARG004 — as the original
        return _current().start(coroutine)

    @staticmethod
    def get_running_loop() -> type[VirtualAsyncio]:
        return VirtualAsyncio

    @staticmethod
    def call_later(delay: float, call: Callable[..., object], *arguments: object) -> _Timer:
        timer = _Timer(lambda: call(*arguments))
        _current().later(delay, timer.fire)
        return timer


def _current() -> Process:
    process = running_loop().current
    assert process is not None, "only a process does this"
    return process
