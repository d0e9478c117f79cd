"""What has to be done now and then: partitions made ahead, and what nobody needs any more removed."""

from dataclasses import dataclass

from attune.runtime.failpoints import afailpoint
from attune.storage import dead_letters
from attune.storage.access import sealed_parameters
from attune.storage.alerting import episodes
from attune.storage.output import artifacts
from attune.storage.tx import Tx
from attune.storage.upkeep import housekeeping

DAYS_AHEAD = 7
DELETED_MAX = 5000
# How long it is known that an alert was raised.
ALERT_DAYS = 30
# Each may have hundreds of pieces.
ARTIFACTS_DELETED_MAX = 500
SECRETS_DELETED_MAX = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How long things are kept."""

    dead_letter_seconds: float
    idempotency_hours: int
    history_days: int
    logs_days: int = 30
    artifacts_days: int = 30
    # With an execution goes what was sealed for it.
    executions_days: int = 30


async def keep_house(tx: Tx, keeping: Keeping) -> int:
    """Make partitions, drop old rows in bounded batches; one replica at a time. Returns how much was removed."""
    if not await housekeeping.try_lock(tx):
        return 0
    await housekeeping.ensure_partitions(tx, days_ahead=DAYS_AHEAD)
    await afailpoint("sweep.housekeeping.partitions_made")
    await housekeeping.drop_history(tx, older_than_days=keeping.history_days)
    await housekeeping.drop_logs(tx, older_than_days=keeping.logs_days)
    removed = await dead_letters.delete_older_than(tx, seconds=keeping.dead_letter_seconds, limit=DELETED_MAX)
    removed += await artifacts.delete_older_than(tx, days=keeping.artifacts_days, limit=ARTIFACTS_DELETED_MAX)
    removed += await sealed_parameters.delete_older_than(tx, days=keeping.executions_days, limit=SECRETS_DELETED_MAX)
    removed += await episodes.delete_resolved(tx, older_than_days=ALERT_DAYS, limit=DELETED_MAX)
    return removed + await housekeeping.delete_idempotency_keys(
        tx, older_than_hours=keeping.idempotency_hours, limit=DELETED_MAX
    )
