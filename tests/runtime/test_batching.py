"""What is promised about batching: company without waiting, no neighbour harmed."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.runtime.batching import Batcher, BatcherClosed, Overloaded
from tests.witness.apart import run_apart


class Refused(Exception):
    pass


class Gone(Exception):
    pass


class Doubler:
    """Doubles numbers, remembers its batches, and waits at a gate so that tests decide what piles up."""

    def __init__(self, *, bad: frozenset[int] = frozenset(), error: type[Exception] = Refused) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.bad = bad
        self.error = error

    async def __call__(self, items: Sequence[int]) -> Sequence[int | BaseException]:
        self.batches.append(list(items))
        await self.gate.wait()
        if self.bad.intersection(items):
            raise self.error(sorted(self.bad.intersection(items)))
        return [item * 2 for item in items]


async def until(batcher_state: Doubler, batches: int) -> None:
    async with asyncio.timeout(10):
        while len(batcher_state.batches) < batches:
            await asyncio.sleep(0)


async def test_a_lone_item_is_handled_at_once() -> None:
    doubler = Doubler()

    assert await Batcher(doubler, batch_max=10).submit(4) == 8
    assert doubler.batches == [[4]]


async def test_what_arrives_during_a_batch_forms_the_next_one_up_to_the_limit() -> None:
    doubler = Doubler()
    doubler.gate.clear()
    batcher = Batcher(doubler, batch_max=3)
    first = asyncio.create_task(batcher.submit(0))
    await until(doubler, 1)
    others = [asyncio.create_task(batcher.submit(number)) for number in range(1, 6)]
    await asyncio.sleep(0)
    doubler.gate.set()

    assert await asyncio.gather(first, *others) == [0, 2, 4, 6, 8, 10]
    assert doubler.batches == [[0], [1, 2, 3], [4, 5]]


async def test_one_bad_item_fails_alone() -> None:
    doubler = Doubler(bad=frozenset({2}))
    batcher = Batcher(doubler, batch_max=10)

    answers = await asyncio.gather(*(batcher.submit(number) for number in range(4)), return_exceptions=True)

    assert [answers[0], answers[1], answers[3]] == [0, 2, 6]
    assert isinstance(answers[2], Refused)
    assert doubler.batches == [[0, 1, 2, 3], [0], [1], [2], [3]]


async def test_an_error_that_concerns_no_single_item_is_not_tried_item_by_item() -> None:
    doubler = Doubler(bad=frozenset({2}), error=Gone)
    batcher = Batcher(doubler, batch_max=10, shared_errors=(Gone,))

    answers = await asyncio.gather(*(batcher.submit(number) for number in range(4)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [Gone] * 4
    assert len(doubler.batches) == 1


async def test_an_error_among_the_results_reaches_only_its_item() -> None:
    async def handler(items: Sequence[int]) -> Sequence[int | BaseException]:
        return [Refused() if item == 1 else item for item in items]

    batcher: Batcher[int, int] = Batcher(handler, batch_max=10)

    answers = await asyncio.gather(batcher.submit(0), batcher.submit(1), return_exceptions=True)

    assert answers[0] == 0
    assert isinstance(answers[1], Refused)


async def test_a_handler_that_miscounts_is_told_and_not_called_again() -> None:
    calls: list[int] = []

    async def handler(items: Sequence[int]) -> Sequence[int | BaseException]:
        calls.append(len(items))
        return []

    batcher: Batcher[int, int] = Batcher(handler, batch_max=10)

    with pytest.raises(RuntimeError, match="0 results for 1 items"):
        await batcher.submit(1)
    assert calls == [1]


async def test_cancelling_one_submitter_leaves_the_batch_and_its_neighbours_alone() -> None:
    doubler = Doubler()
    doubler.gate.clear()
    batcher = Batcher(doubler, batch_max=10)
    leaver, stayer = (asyncio.create_task(batcher.submit(number)) for number in (1, 2))
    await until(doubler, 1)
    leaver.cancel()
    await asyncio.sleep(0)
    doubler.gate.set()

    assert await stayer == 4
    assert leaver.cancelled()


async def test_an_item_withdrawn_before_its_batch_is_never_handled() -> None:
    doubler = Doubler()
    doubler.gate.clear()
    batcher = Batcher(doubler, batch_max=1)
    first, second, third = (asyncio.create_task(batcher.submit(number)) for number in (1, 2, 3))
    await until(doubler, 1)
    second.cancel()
    doubler.gate.set()

    assert await first == 2
    assert await third == 6
    assert doubler.batches == [[1], [3]]


async def test_more_than_may_wait_is_refused() -> None:
    doubler = Doubler()
    doubler.gate.clear()
    batcher = Batcher(doubler, batch_max=1, waiting_max=2)
    first = asyncio.create_task(batcher.submit(0))
    await until(doubler, 1)
    waiting = [asyncio.create_task(batcher.submit(number)) for number in (1, 2)]
    await asyncio.sleep(0)

    with pytest.raises(Overloaded, match="2 items"):
        await batcher.submit(3)

    doubler.gate.set()
    assert await asyncio.gather(first, *waiting) == [0, 2, 4]


async def test_closing_finishes_what_was_taken_and_refuses_the_rest() -> None:
    doubler = Doubler()
    doubler.gate.clear()
    batcher = Batcher(doubler, batch_max=1)
    taken = [asyncio.create_task(batcher.submit(number)) for number in (1, 2)]
    await until(doubler, 1)
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)
    doubler.gate.set()
    await closing

    assert [task.result() for task in taken] == [2, 4]
    with pytest.raises(BatcherClosed):
        await batcher.submit(3)


@given(
    numbers=st.lists(st.integers(0, 50), max_size=40),
    bad=st.frozensets(st.integers(0, 50), max_size=5),
    batch_max=st.integers(1, 10),
)
def test_everybody_gets_their_own_answer(numbers: list[int], bad: frozenset[int], batch_max: int) -> None:
    async def run() -> list[int | BaseException]:
        batcher = Batcher(Doubler(bad=bad), batch_max=batch_max)
        return await asyncio.gather(*(batcher.submit(number) for number in numbers), return_exceptions=True)

    for number, answer in zip(numbers, run_apart(run()), strict=True):
        assert isinstance(answer, Refused) if number in bad else answer == number * 2
