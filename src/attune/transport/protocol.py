"""What every transport offers: declare queues, hand out messages, tell others after a commit.

Both transports deliver at least once and in any order. A batch is taken, handled and acknowledged by one loop
(`consume.py`), which is the only caller of a `Source`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from attune.domain.messages import Broadcast, Message
from attune.storage.tx import Tx
from attune.transport.limits import Limits
from attune.transport.topology import Queue, TopologyRow


class Source(Protocol):
    """The messages of one queue, as one consumer sees them."""

    async def wait(self) -> None:
        """Return when there may be something to take."""

    async def take(self, tx: Tx, limit: int) -> list[Message]:
        """Take a batch of messages that nothing speaks against; what is taken returns if `tx` does not commit.

        All of one topic or type, because a transaction that does the work of two kinds would lock for the second what
        comes before the locks of the first: an admission's lines after a placement's pools.
        """

    async def take_suspect(self) -> Message | None:
        """One message that failed before, or was there when a process died: now a row, its delivery counted."""

    async def retake(self, tx: Tx, message: Message) -> bool:
        """Take again one message of a batch that failed, or a suspect; False if another consumer has it now."""

    async def put_off(self, tx: Tx, message: Message, *, delay_seconds: float) -> None:
        """Count a failed delivery of a message that is no suspect and let it come back after the delay."""

    async def give_back(self, messages: Sequence[Message]) -> None:
        """The transaction that took these was rolled back: they are to be taken again."""

    async def settle(self, messages: Sequence[Message]) -> None:
        """The transaction that took these has committed: acknowledge."""


class Transport(Protocol):
    """How messages get from a commit to their handler."""

    name: str

    async def run(self) -> None:
        """Work in the background until cancelled; nothing else here comes about unless this runs."""

    async def declare(self, queues: Sequence[Queue]) -> None:
        """Make what a service consumes exist; a disagreement about it raises `TopologyMismatch`, which is fatal."""

    def consume(self, queue: Queue, limits: Limits) -> AbstractAsyncContextManager[Source]:
        """Start consuming a queue that was declared."""

    async def after_commit(self, messages: Sequence[Message], broadcasts: Sequence[Broadcast]) -> None:
        """Wake or publish what a transaction of this process just committed; never raises."""

    def broadcasts(self) -> AsyncIterator[Broadcast]:
        """Every kind of thing with its revision, first as it stands and then as it changes; some may come twice."""

    def problems(self) -> list[str]:
        """Why this transport is not ready, with the cure; empty if all is well."""

    async def inspect(self, queues: Sequence[Queue], *, repair: bool = False) -> list[TopologyRow]:
        """Compare what exists with what should, and mend what can be mended without losing a message."""
