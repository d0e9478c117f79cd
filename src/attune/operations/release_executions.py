"""What the end of executions makes possible: room on workers goes to whoever waits for it."""

from collections.abc import Callable

from attune.operations.place_admitted import place_admitted
from attune.storage import unplaced
from attune.storage.tx import Tx


async def release_executions(tx: Tx, *, actor: str, draw: Callable[[], float]) -> int:
    """Place what waits, now that executions have ended; doing so twice changes nothing."""
    pools = await unplaced.list_pools(tx)
    return await place_admitted(tx, pools, actor=actor, draw=draw) if pools else 0
