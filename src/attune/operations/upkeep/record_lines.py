"""Writes down how the lines are doing, for the history that people look at later."""

from attune.runtime.failpoints import afailpoint
from attune.storage.statistics import line_history
from attune.storage.tx import Tx

# One look forgets at most this much; the next one forgets the rest.
FORGOTTEN_MAX = 2000


async def record_lines(tx: Tx, *, days: int) -> int:
    """Look at every line once, and forget what is too old; safe on every replica at once. It mends nothing: 0."""
    await line_history.record(tx)
    await line_history.record_waits(tx)
    await afailpoint("sweep.line_history.recorded")
    await line_history.delete_older_than(tx, days=days, limit=FORGOTTEN_MAX)
    return 0
