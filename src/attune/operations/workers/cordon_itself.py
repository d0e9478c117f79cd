"""Lets a worker take itself out of placement while something of its machine is missing, and come back."""

from uuid import UUID

from attune.operations.workers.hint_room import hint_room
from attune.storage.availability import steering
from attune.storage.tx import Tx


async def cordon_itself(tx: Tx, *, instance: UUID, reason: str) -> bool:
    """Place nothing more there. A worker that people cordoned stays theirs."""
    return await steering.cordon_itself(tx, instance, reason)


async def uncordon_itself(tx: Tx, *, instance: UUID) -> bool:
    """Let placement come back, unless people have decided otherwise since."""
    if not await steering.uncordon_itself(tx, instance):
        return False
    await hint_room(tx)
    return True
