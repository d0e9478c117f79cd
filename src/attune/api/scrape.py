"""What a monitoring system is told: gauges as they stand, and what all processes counted."""

import asyncio
from collections.abc import Sequence
from typing import Final

from attune.domain.alerts.catalogue import ALERTS
from attune.runtime.clock import monotonic
from attune.runtime.metrics import Metrics
from attune.storage import outbox
from attune.storage.alerting import episodes
from attune.storage.database import Database
from attune.storage.statistics import counters, gauges
from attune.storage.statistics.gauges import ScopeGauges

# Whoever asks more often than this is told the same again.
FRESH_SECONDS: Final = 1.0
# Messages and dead letters are counted up to this many.
COUNTED_MAX: Final = 100_000
# Told even where there is none, so that an alarm can be set on it.
WORKER_STATUSES: Final = ("active", "unresponsive", "draining", "inactive", "lost")


class Scrape:
    """Asks the database at most once a second, however many ask here."""

    def __init__(self, database: Database, metrics: Metrics, *, lines: bool) -> None:
        self._database = database
        self._metrics = metrics
        self._lines = lines
        self._asking = asyncio.Lock()
        self._told = b""
        self._asked_at: float | None = None

    async def render(self) -> bytes:
        """The numbers of the whole platform."""
        async with self._asking:
            if self._asked_at is None or monotonic() - self._asked_at >= FRESH_SECONDS:
                self._told = await self._ask()
                self._asked_at = monotonic()
            return self._told

    async def _ask(self) -> bytes:
        metrics = self._metrics
        async with self._database.reading() as tx:
            workers = await gauges.count_workers(tx)
            rows, oldest_seconds = await outbox.measure(tx, limit=COUNTED_MAX)
            metrics.dead_letter_depth.set(await gauges.count_dead_letters(tx, limit=COUNTED_MAX))
            firing = await episodes.count_firing(tx)
            scopes = await gauges.list_scopes(tx) if self._lines else []
            counted = await counters.list_all(tx)
        for status in WORKER_STATUSES:
            metrics.workers.labels(status=status).set(workers.get(status, 0))
        for alert in ALERTS:
            metrics.alerts_firing.labels(name=alert.name).set(firing.get(alert.name, 0))
        metrics.outbox_rows.set(rows)
        metrics.outbox_oldest_seconds.set(oldest_seconds)
        self._show_lines(scopes)
        return metrics.render(counted)

    def _show_lines(self, scopes: Sequence[ScopeGauges]) -> None:
        metrics = self._metrics
        shown = (metrics.line_waiting, metrics.line_active, metrics.line_limit, metrics.line_oldest_seconds)
        for gauge in (*shown, metrics.line_wait_seconds):
            gauge.clear()
        for each in scopes:
            numbers = (each.waiting, each.active, each.max_concurrent, each.oldest_seconds)
            for gauge, number in zip(shown, numbers, strict=True):
                if number is not None:
                    gauge.labels(scope=each.scope).set(number)
            waits = {"0.5": each.wait_p50, "0.95": each.wait_p95, "0.99": each.wait_p99}
            for quantile, seconds in waits.items():
                if seconds is not None:
                    metrics.line_wait_seconds.labels(scope=each.scope, quantile=quantile).set(seconds)
