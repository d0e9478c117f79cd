"""Makes exchanges, queues and bindings exist; every declaration may be repeated by anybody."""

from collections.abc import Sequence
from typing import Final

from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue
from aio_pika.exceptions import ChannelPreconditionFailed

from attune.transport.topology import DEAD_LETTERS, EXCHANGE_TYPES, Queue, TopologyMismatch

REPAIR: Final = "run `attune topology --repair`, which declares it anew if it is empty"


def exchange_types(dead_letter_exchange: str) -> dict[str, str]:
    """Every exchange with its type; the one for dead letters may have another name."""
    types = {name: kind for name, kind in EXCHANGE_TYPES.items() if name != DEAD_LETTERS}
    return types | {dead_letter_exchange: EXCHANGE_TYPES[DEAD_LETTERS]}


def arguments_of(queue: Queue, *, dead_letter_exchange: str) -> dict[str, str | int]:
    """The arguments that must be the same at every declaration of the queue."""
    arguments: dict[str, str | int] = {}
    if queue.dead_letters:
        arguments["x-dead-letter-exchange"] = dead_letter_exchange
    if queue.ttl_ms is not None:
        arguments["x-message-ttl"] = queue.ttl_ms
    if queue.expires_ms is not None:
        arguments["x-expires"] = queue.expires_ms
    return arguments


async def declare_exchanges(channel: AbstractChannel, *, dead_letter_exchange: str) -> None:
    """The exchanges everybody shares."""
    for name, kind in exchange_types(dead_letter_exchange).items():
        try:
            await channel.declare_exchange(name, kind, durable=True)
        except ChannelPreconditionFailed as error:
            raise TopologyMismatch(f"exchange {name} exists with another type ({error}); {REPAIR}") from error


async def declare_queue(channel: AbstractChannel, queue: Queue, *, dead_letter_exchange: str) -> AbstractQueue:
    """A queue with its bindings."""
    arguments = arguments_of(queue, dead_letter_exchange=dead_letter_exchange)
    try:
        declared = await channel.declare_queue(queue.name, durable=True, arguments={**arguments})
    except ChannelPreconditionFailed as error:
        raise TopologyMismatch(f"queue {queue.name} exists with other arguments ({error}); {REPAIR}") from error
    for key in queue.keys:
        await declared.bind(queue.exchange, key)
    return declared


async def declare_all(channel: AbstractChannel, queues: Sequence[Queue], *, dead_letter_exchange: str) -> None:
    """The exchanges and some queues."""
    await declare_exchanges(channel, dead_letter_exchange=dead_letter_exchange)
    for queue in queues:
        await declare_queue(channel, queue, dead_letter_exchange=dead_letter_exchange)


async def count_consumers(connection: AbstractConnection, queue_name: str) -> int:
    """How many consumers the broker sees; raises if the queue is gone."""
    channel = await connection.channel(publisher_confirms=False)
    try:
        found = await channel.declare_queue(queue_name, passive=True)
        return found.declaration_result.consumer_count or 0
    finally:
        await channel.close()
