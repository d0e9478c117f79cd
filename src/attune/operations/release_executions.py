"""What the end of executions makes possible: their slots go to the next in line, their room to whoever waits for it."""

from collections.abc import Callable, Sequence

from attune.operations.lines.admit_waiting import admit_waiting
from attune.storage import unplaced
from attune.storage.tx import Tx


async def release_executions(tx: Tx, ended: Sequence[int], *, actor: str, draw: Callable[[], float]) -> int:
    """Release, admit and place, now that executions have ended; doing so twice changes nothing."""
    pools = await unplaced.list_pools(tx)
    return await admit_waiting(tx, (), ended=ended, roomier=pools, actor=actor, draw=draw)
