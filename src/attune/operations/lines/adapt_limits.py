"""Moves the limits that move by themselves, by what happened to those who ran under them."""

from attune.domain.adaptive import decide_limit
from attune.domain.messages import MessageType
from attune.runtime.failpoints import afailpoint
from attune.storage.line_upkeep import controls, sweeps
from attune.storage.tx import Tx

# One pass looks at no more lines than this; the next pass looks at the rest.
LINES_MAX = 100


async def adapt_limits(tx: Tx) -> int:
    """Decide for every line in which enough has happened; returns how many limits changed.

    Several replicas may do so at once: who gets the lock later finds that the window has just begun.
    """
    line_ids = await sweeps.list_adaptive(tx, limit=LINES_MAX)
    if not line_ids:
        return 0
    await afailpoint("sweep.adaptive_limits.selected")
    await controls.lock_many(tx, line_ids)
    looks = [
        (line, decide_limit(line.adaptive, limit=line.limit, best_seconds=line.best_seconds, window=line.window))
        for line in await sweeps.read_windows(tx, line_ids)
    ]
    changed = await sweeps.save_looks(tx, looks) if looks else []
    raised = [line.line_id for line, decision in looks if decision is not None and decision.limit > line.limit]
    if raised:
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0) for line_id in raised])
    return len(changed)
