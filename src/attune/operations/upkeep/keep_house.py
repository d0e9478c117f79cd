"""What has to be done now and then: partitions made ahead, and what nobody needs any more removed."""

from attune.storage import dead_letters
from attune.storage.alerting import episodes
from attune.storage.tx import Tx
from attune.storage.upkeep import housekeeping

DAYS_AHEAD = 7
DELETED_MAX = 5000
# How long it is known that an alert was raised.
ALERT_DAYS = 30


async def keep_house(tx: Tx, *, dead_letter_seconds: float, idempotency_hours: int, history_days: int) -> int:
    """Make partitions, drop old rows in bounded batches; one replica at a time. Returns how much was removed."""
    if not await housekeeping.try_lock(tx):
        return 0
    await housekeeping.ensure_partitions(tx, days_ahead=DAYS_AHEAD)
    await housekeeping.drop_history(tx, older_than_days=history_days)
    removed = await dead_letters.delete_older_than(tx, seconds=dead_letter_seconds, limit=DELETED_MAX)
    removed += await episodes.delete_resolved(tx, older_than_days=ALERT_DAYS, limit=DELETED_MAX)
    return removed + await housekeeping.delete_idempotency_keys(
        tx, older_than_hours=idempotency_hours, limit=DELETED_MAX
    )
