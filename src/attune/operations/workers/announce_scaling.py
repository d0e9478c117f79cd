"""Tells when a pool wants another number of workers than before: once, however many replicas look."""

from attune.domain.availability.scaling import ScalingChange, changes_of, plan_pool
from attune.runtime.failpoints import afailpoint
from attune.storage.availability import scaling_changes
from attune.storage.tx import Tx
from attune.storage.views import scaling

# So many changes are kept.
KEPT_MAX = 1000


async def announce_scaling(tx: Tx) -> list[ScalingChange]:
    """Compare what each pool wants with what it last wanted, and write down what is news."""
    if not await scaling_changes.try_lock(tx):
        return []
    fleet = await scaling.read_fleet(tx)
    plans = [plan_pool(demand, fleet) for demand in await scaling.list_demand(tx)]
    changes = changes_of(plans, await scaling_changes.list_last(tx))
    await afailpoint("sweep.scaling.decided")
    if changes:
        await scaling_changes.insert(tx, changes)
        await scaling_changes.delete_beyond(tx, kept=KEPT_MAX)
    return changes
