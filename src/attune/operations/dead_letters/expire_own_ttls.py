"""Ends the patience of dispatches that have a time to live of their own.

A broker expires messages only at the head of a queue, so one time for all is all that a queue can keep.
"""

from attune.domain.endings.dead_letters import Expiry
from attune.domain.messages import dispatch_topic
from attune.operations.dead_letters.bury_dead_letters import bury_dead_letters
from attune.runtime.failpoints import afailpoint
from attune.storage import assignments
from attune.storage.tx import Tx

# One pass takes at most this many; the next pass takes the rest.
EXPIRED_MAX = 500


async def expire_own_ttls(tx: Tx, *, pinned_ttl_seconds: float | None, placements_max: int) -> int:
    """Bury what outlived its own time; pinned work, where nothing else would end its wait, the time given."""
    overdue = await assignments.list_past_own_ttl(tx, pinned_ttl_seconds=pinned_ttl_seconds, limit=EXPIRED_MAX)
    expiries = [
        Expiry(
            item=(each.execution_id, each.attempt),
            deaths=(f"{dispatch_topic(each.worker_id)} expired at {each.died_at.isoformat()} by its own TTL",),
            died_at=each.died_at,
        )
        for each in overdue
    ]
    if not expiries:
        return 0
    await afailpoint("sweep.own_ttl.selected")
    return len(await bury_dead_letters(tx, expiries, placements_max=placements_max))
