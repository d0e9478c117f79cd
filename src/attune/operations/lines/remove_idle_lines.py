"""Removes the lines of groups that nobody uses any more; whoever needs one again makes it again."""

from attune.runtime.failpoints import afailpoint
from attune.storage import lines
from attune.storage.tx import Tx

# A group that was busy a moment ago will probably be busy again.
IDLE_SECONDS = 300.0
# One pass removes at most this many; the next pass removes the rest.
REMOVED_MAX = 5000


async def remove_idle_lines(tx: Tx) -> int:
    """Returns how many were removed; what they had counted stays with their scope."""
    removed = await lines.delete_idle(tx, seconds=IDLE_SECONDS, limit=REMOVED_MAX)
    await afailpoint("sweep.idle_lines.before_commit")
    return removed
