"""Lets executions wait for room on a worker, in a way that no wake-up can be lost."""

from collections.abc import Sequence

from attune.domain.messages import MessageType
from attune.storage import unplaced
from attune.storage.tx import Tx
from attune.storage.unplaced import NewUnplaced


async def keep_unplaced(tx: Tx, rows: Sequence[NewUnplaced]) -> None:
    """Write who waits, with a hint to look again.

    Room may have appeared since it was looked for; without the hint nobody would look again.
    """
    if not rows:
        return
    await unplaced.insert_many(tx, rows)
    pools = sorted({row.pool for row in rows})
    tx.announce(MessageType.POOL_CHANGED, MessageType.POOL_CHANGED, [(pool, 0) for pool in pools])


async def tell_of_room(tx: Tx) -> None:
    """Let every pool look again: whoever leaves a worker without an end leaves room to others than its own kind."""
    pools = await unplaced.list_pools(tx)
    tx.announce(MessageType.POOL_CHANGED, MessageType.POOL_CHANGED, [(pool, 0) for pool in pools])
