"""A worker's answer to a ping, written by the consumer that received it."""

from uuid import UUID

from attune.operations.workers.hint_room import hint_room
from attune.storage.availability import probes
from attune.storage.tx import Tx


async def answer_ping(tx: Tx, *, instance: UUID) -> None:
    """Say that this worker listens; after a silence its room is news."""
    if await probes.save_pong(tx, instance):
        await hint_room(tx)
