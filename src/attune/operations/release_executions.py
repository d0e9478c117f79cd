"""What the end of executions makes possible: their slots go to the next in line, their room to whoever waits for it."""

from collections.abc import Callable, Sequence

from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.place_admitted import place_admitted
from attune.storage import unplaced
from attune.storage.tx import Tx


async def release_executions(tx: Tx, ended: Sequence[int], *, actor: str, draw: Callable[[], float]) -> int:
    """Release, admit and place, now that executions have ended; doing so twice changes nothing."""
    admitted = await admit_waiting(tx, (), ended=ended, actor=actor, draw=draw)
    pools = await unplaced.list_pools(tx)
    return admitted + (await place_admitted(tx, pools, actor=actor, draw=draw) if pools else 0)
