"""Being cancelled while the broker's connection closes: the client library must not talk us out of ending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from attune.transport.rabbitmq.link import BROKER_ERRORS, broker_calls


async def wait_and_raise_another() -> None:
    """As the client does for whoever waits on a connection that closes."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ConnectionError("closed") from None


async def wait_and_return() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


async def call_again_and_again(call: Callable[[], Awaitable[None]]) -> None:
    """As every loop here does: what the broker does wrong is no reason to stop."""
    while True:
        try:
            async with asyncio.timeout(60):
                with broker_calls():
                    await call()
        except BROKER_ERRORS:
            await asyncio.sleep(0)


@pytest.mark.parametrize("call", [wait_and_raise_another, wait_and_return])
async def test_whoever_is_cancelled_inside_a_call_ends(call: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.create_task(call_again_and_again(call))
    await asyncio.sleep(0)

    task.cancel()

    done, _ = await asyncio.wait([task], timeout=5)
    assert done
    assert task.cancelled()


@pytest.mark.parametrize("call", [wait_and_raise_another, wait_and_return])
async def test_a_call_that_takes_too_long_is_a_timeout_whatever_the_library_makes_of_it(
    call: Callable[[], Awaitable[None]],
) -> None:
    async def call_in_time() -> None:
        async with asyncio.timeout(0.01):
            with broker_calls():
                await call()

    with pytest.raises(TimeoutError):
        await call_in_time()


@pytest.mark.parametrize("close", [asyncio.Future.cancel, lambda lost: lost.set_exception(Exception)])
async def test_a_connection_that_closes_by_itself_is_an_error_and_not_our_end(
    close: Callable[[asyncio.Future[None]], object],
) -> None:
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(close, lost)

    with pytest.raises(ConnectionError), broker_calls():
        await lost
