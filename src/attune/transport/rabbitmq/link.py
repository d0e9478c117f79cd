"""A connection to the broker that is made again for ever.

The client library's own reconnecting mode has lost consumers and hung publishers; so a connection here lives or is
thrown away whole, and everything on it is declared anew on the next.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel, AbstractConnection
from aio_pika.exceptions import CONNECTION_EXCEPTIONS

from attune.runtime.clock import draw, jittered_backoff
from attune.transport.rabbitmq.options import (
    CLOSE_SECONDS,
    CONNECT_SECONDS,
    HEARTBEAT_SECONDS,
    REQUEST_SECONDS,
    RabbitOptions,
)
from attune.transport.topology import TopologyMismatch

BROKER_ERRORS: Final = (*CONNECTION_EXCEPTIONS, TimeoutError, asyncio.InvalidStateError)
RECONNECT_FIRST_SECONDS = 0.2

Prepare = Callable[[AbstractConnection], Awaitable[None]]


@contextmanager
def broker_calls() -> Iterator[None]:
    """Keep the client library's cancelling and our own apart.

    It cancels whoever waits on a connection that closes, or gives them an `Exception` without a kind; that is a loss
    of the connection. And when we are cancelled while a connection closes, it raises its own error or even returns:
    whoever went on then could never be ended.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except asyncio.CancelledError:
        if task is None or task.cancelling():
            raise
        raise ConnectionError("the connection to RabbitMQ was closed") from None
    except Exception as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        if type(error) is Exception:
            raise ConnectionError("the connection to RabbitMQ was closed") from error
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def connect(options: RabbitOptions, *, purpose: str) -> AbstractConnection:
    """One connection, named for the reader of the broker's list."""
    async with asyncio.timeout(CONNECT_SECONDS):
        return await aio_pika.connect(
            options.url,
            heartbeat=HEARTBEAT_SECONDS,
            client_properties={"connection_name": f"attune {options.instance} {purpose}"},
        )


async def close(thing: AbstractConnection | AbstractChannel) -> None:
    """Let go, without waiting long for a broker that may be gone."""
    with suppress(*BROKER_ERRORS), broker_calls():
        async with asyncio.timeout(CLOSE_SECONDS):
            await thing.close()


class Link:
    """A connection with one purpose, and what has to be on it."""

    def __init__(self, options: RabbitOptions, *, purpose: str, prepare: Prepare) -> None:
        self._options = options
        self._purpose = purpose
        self._prepare = prepare
        self._lost = asyncio.Event()
        self._connection: AbstractConnection | None = None
        self._log = structlog.get_logger()
        self.up = asyncio.Event()
        self.problem = f"not yet connected to RabbitMQ ({purpose})"

    @property
    def connection(self) -> AbstractConnection | None:
        """The connection, while it is usable."""
        return self._connection if self.up.is_set() else None

    def lose(self) -> None:
        """Give this connection up and make a new one."""
        self._lost.set()

    def watch(self, channel: AbstractChannel) -> None:
        """A channel that closes takes the connection with it: half a connection is worse than none."""
        lost = self._lost
        channel.close_callbacks.add(lambda *_: lost.set())

    async def run(self) -> None:
        """Keep the connection up until cancelled."""
        failures = 0
        while True:
            try:
                with broker_calls():
                    async with self._connected():
                        failures = 0
                        await self._lost.wait()
                self.problem = f"the connection to RabbitMQ was lost ({self._purpose})"
            except TopologyMismatch as error:
                self.problem = error.message
            except BROKER_ERRORS as error:
                self.problem = f"RabbitMQ cannot be reached ({self._purpose}): {type(error).__name__}: {error}"
            failures += 1
            self._log.warning("broker.lost", purpose=self._purpose, problem=self.problem, failures=failures)
            await asyncio.sleep(
                jittered_backoff(
                    failures,
                    first_seconds=RECONNECT_FIRST_SECONDS,
                    ceiling_seconds=self._options.reconnect_ceiling_seconds,
                    drawn=draw(),
                )
            )

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        connection = await connect(self._options, purpose=self._purpose)
        try:
            # A new one for each connection: the end of an old one, noticed late, must not end this one.
            lost = self._lost = asyncio.Event()
            connection.close_callbacks.add(lambda *_: lost.set())
            self._connection = connection
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._prepare(connection)
            self.problem = ""
            self.up.set()
            self._log.info("broker.connected", purpose=self._purpose)
            yield
        finally:
            self.up.clear()
            self._connection = None
            await close(connection)
