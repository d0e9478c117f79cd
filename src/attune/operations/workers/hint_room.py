"""Lets everybody who waits for a worker look again, because there may be room now."""

from attune.domain.messages import MessageType
from attune.storage import lines, unplaced
from attune.storage.tx import Tx

# The state audit wakes the rest.
WOKEN_MAX = 10_000


async def hint_room(tx: Tx) -> None:
    """Have every pool in which somebody waits looked at, and every line that had no worker for its head."""
    if pools := await unplaced.list_pools(tx):
        tx.announce(MessageType.POOL_CHANGED, MessageType.POOL_CHANGED, [(pool, 0) for pool in pools])
    if held := await lines.list_held(tx, limit=WOKEN_MAX):
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0) for line_id in held])
