"""Messages of a version that only a newer Attune reads: held for a while, then back into their queue.

During an upgrade a newer replica consumes the same queue, and sooner or later it is the one that gets them. They cannot
become rows, as other messages that are put off do, because nobody here knows what they say.
"""

import asyncio
from datetime import UTC

import structlog
from aio_pika.abc import AbstractIncomingMessage

from attune.runtime.clock import draw, utc_now
from attune.transport.rabbitmq.link import BROKER_ERRORS, broker_calls

# An upgrade takes less; what is older was left behind by a version that went away, and is parked.
PATIENCE_SECONDS = 3600.0


def is_hopeless(delivery: AbstractIncomingMessage) -> bool:
    """Whether it has waited longer than any upgrade takes, or does not say since when."""
    sent = delivery.timestamp
    if sent is None:
        return True
    aware = sent if sent.tzinfo else sent.replace(tzinfo=UTC)
    return (utc_now() - aware).total_seconds() > PATIENCE_SECONDS


class Returning:
    """What is held now and will be given back."""

    def __init__(self, *, hold_seconds: float) -> None:
        self._hold_seconds = hold_seconds
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self, delivery: AbstractIncomingMessage) -> None:
        """Give it back to the broker in a while; the prefetch bounds how many are held."""
        task = asyncio.create_task(self._give_back_later(delivery), name="give back")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self) -> None:
        """Their connection is gone, or will be: the broker has them back without our help."""
        for task in self._tasks:
            task.cancel()

    async def _give_back_later(self, delivery: AbstractIncomingMessage) -> None:
        structlog.get_logger().info("message.newer", topic=delivery.routing_key, held_seconds=self._hold_seconds)
        # The jitter keeps an old replica from always being the first to look.
        await asyncio.sleep(self._hold_seconds * (1 + draw() / 2))
        try:
            with broker_calls():
                await delivery.channel.basic_nack(delivery.delivery_tag or 0, requeue=True, wait=False)
        except BROKER_ERRORS:
            return
