"""Asks every worker whether it still listens, and keeps placement away from those that do not answer.

Only the consumer of a worker's control queue answers. Heartbeats that go on while it hangs do not save a worker, and
silence takes nothing away from it: what it runs is judged by its leases alone.
"""

from attune.domain.messages import MessageType, cancel_topic
from attune.runtime.failpoints import afailpoint
from attune.storage.availability import probes
from attune.storage.tx import Tx

# Shares of the interval. One that falls silent right after an answer is pinged within the period and a look, and is
# taken out after the patience and another look: less than two intervals, jitter included.
LOOK_SHARE = 0.25
PERIOD_SHARE = 0.75
PATIENCE_SHARE = 0.5


async def probe_workers(tx: Tx, *, interval_seconds: float) -> int:
    """Take out the silent, ping the rest; returns how many were taken out."""
    silent = await probes.mark_unresponsive(tx, patience_seconds=interval_seconds * PATIENCE_SHARE)
    await afailpoint("sweep.health_probe.marked")
    for worker_id in await probes.take_due(tx, period_seconds=interval_seconds * PERIOD_SHARE):
        tx.announce(cancel_topic(worker_id), MessageType.WORKER_PINGED, [(worker_id, 0)])
    return len(silent)
