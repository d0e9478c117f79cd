"""What an executor watches for people: alerts, and how many workers are wanted; each change is told once."""

from collections.abc import Sequence

import structlog

from attune.domain.alerts.episodes import Turn
from attune.domain.availability.scaling import ScalingChange
from attune.executor.sweeps import Sweep
from attune.operations.upkeep.evaluate_alerts import evaluate_alerts
from attune.operations.workers.announce_scaling import announce_scaling
from attune.runtime.metrics import Metrics
from attune.storage.tx import Commit, Tx

ALERT_SECONDS = 10.0
SCALING_SECONDS = 10.0


def watches(*, max_queue_length: int, metrics: Metrics) -> Sequence[Sweep]:
    """The table of what is watched. It mends nothing: 0."""

    async def watch_alerts(tx: Tx) -> int:
        turn = await evaluate_alerts(tx, default_length_max=max_queue_length)
        tx.at_end(lambda commit: _tell_alerts(turn, metrics) if commit is Commit.DONE else None)
        return 0

    async def watch_scaling(tx: Tx) -> int:
        changes = await announce_scaling(tx)
        tx.at_end(lambda commit: _tell_scaling(changes) if commit is Commit.DONE else None)
        return 0

    return (
        Sweep(name="alerts", interval_seconds=ALERT_SECONDS, operation=watch_alerts),
        Sweep(name="scaling", interval_seconds=SCALING_SECONDS, operation=watch_scaling),
    )


def _tell_alerts(turn: Turn, metrics: Metrics) -> None:
    log = structlog.get_logger()
    for each in turn.fired:
        metrics.alerts.labels(name=each.name).inc()
        log.warning("alert.fired", alert=each.name, subject=each.subject, severity=each.severity, message=each.message)
    for each in turn.resolved:
        log.info("alert.resolved", alert=each.name, subject=each.subject)


def _tell_scaling(changes: Sequence[ScalingChange]) -> None:
    for each in changes:
        structlog.get_logger().info(
            "scaling.changed",
            pool=each.pool,
            runner=each.runner,
            before=each.wanted_before,
            wanted=each.wanted,
            backlog=each.backlog,
            workers=each.workers,
        )
