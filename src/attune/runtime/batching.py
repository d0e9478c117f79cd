"""Turns many small calls into few large ones, without waiting for company.

While one batch is being handled, what arrives forms the next: alone and idle an item goes at once, and
under load batches grow by themselves. There is no timer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

WAITING_MAX: Final = 10_000  # Beyond this `submit` refuses instead of growing without end.


class Overloaded(Exception):
    """More is waiting than may wait; the caller may try again later."""


class BatcherClosed(Exception):
    """The batcher takes nothing more; the service is stopping."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Entry(Generic[T, R]):
    item: T
    answer: "asyncio.Future[R]"


class Batcher(Generic[T, R]):
    """Hands items to `handler` in batches and each result back to whoever submitted the item.

    If the handler raises, every item is tried alone once, so that a bad one fails by itself; not so for
    `shared_errors`, which concern no single item (the database is gone): they fail the whole batch.
    The handler must therefore leave nothing behind when it raises.
    """

    def __init__(
        self,
        handler: Callable[[Sequence[T]], Awaitable[Sequence[R | BaseException]]],
        *,
        batch_max: int,
        waiting_max: int = WAITING_MAX,
        shared_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        if batch_max < 1 or waiting_max < 1:
            raise ValueError("batch_max and waiting_max must be at least 1")
        self._handler = handler
        self._batch_max = batch_max
        self._waiting_max = waiting_max
        self._shared_errors = shared_errors
        self._waiting: deque[_Entry[T, R]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    async def submit(self, item: T) -> R:
        """Wait for the item's result. Cancelling withdraws an item not yet taken, never a batch under way."""
        if self._closed:
            raise BatcherClosed
        if len(self._waiting) >= self._waiting_max:
            raise Overloaded(f"{len(self._waiting)} items are waiting already")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Entry(item=item, answer=answer))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="batcher")
        return await answer

    async def close(self) -> None:
        """Refuse new items and wait until those taken before are done."""
        self._closed = True
        if self._worker is not None:
            await asyncio.shield(self._worker)

    async def _work(self) -> None:
        """Handle batches until nothing waits; the next submit starts it again."""
        try:
            while batch := self._take():
                await self._handle(batch)
        finally:
            self._worker = None
            # Only not empty if this task was cancelled: nobody else would answer them.
            while self._waiting:
                self._waiting.popleft().answer.cancel()

    def _take(self) -> list[_Entry[T, R]]:
        batch: list[_Entry[T, R]] = []
        while self._waiting and len(batch) < self._batch_max:
            entry = self._waiting.popleft()
            if not entry.answer.done():
                batch.append(entry)
        return batch

    async def _handle(self, batch: list[_Entry[T, R]]) -> None:
        try:
            error = await self._call(batch)
            if error is None:
                return
            if len(batch) == 1 or isinstance(error, self._shared_errors):
                _fail(batch, error)
                return
            for entry in batch:
                alone = await self._call([entry])
                if alone is not None:
                    _fail([entry], alone)
        finally:
            # Only unanswered if this task was cancelled.
            for entry in batch:
                entry.answer.cancel()

    async def _call(self, batch: list[_Entry[T, R]]) -> Exception | None:
        """Call the handler and answer; returns what it raised. A wrong count is answered, never retried."""
        try:
            results = await self._handler([entry.item for entry in batch])
        except Exception as error:  # noqa: BLE001  given to whoever submitted
            return error
        if len(results) != len(batch):
            _fail(batch, RuntimeError(f"the handler gave {len(results)} results for {len(batch)} items"))
            return None
        for entry, result in zip(batch, results, strict=True):
            if isinstance(result, BaseException):
                _fail([entry], result)
            elif not entry.answer.done():
                entry.answer.set_result(result)
        return None


def _fail(batch: Sequence[_Entry[T, R]], error: BaseException) -> None:
    for entry in batch:
        if not entry.answer.done():
            entry.answer.set_exception(error)
