"""The numbers a process publishes about itself, in Prometheus' format.

Labels have few values: a status, a reason, a sweep. Never an execution, a worker or a group.
"""

import platform
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_START_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One process's metrics; bind label children once where they are counted often."""

    registry: CollectorRegistry
    executions: Counter
    request_to_running_seconds: Histogram
    workers: Gauge
    outbox_rows: Gauge
    outbox_oldest_seconds: Gauge
    sweep_actions: Counter
    fenced_writes: Counter
    conflicts: Counter
    dead_letters: Counter

    def render(self) -> bytes:
        """What `/metrics` answers, with CONTENT_TYPE."""
        return generate_latest(self.registry)


def build_metrics(*, version: str, service: str) -> Metrics:
    """Fresh metrics on a registry of their own; nothing global is touched."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Info("attune_build", "What is running.", registry=registry)
    build.info({"version": version, "service": service, "python": platform.python_version()})
    return Metrics(
        registry=registry,
        executions=Counter(
            "attune_executions_total", "Executions that reached a status.", ["status"], registry=registry
        ),
        request_to_running_seconds=Histogram(
            "attune_request_to_running_seconds",
            "Time from accepting an execution to its start on a worker.",
            buckets=_START_BUCKETS,
            registry=registry,
        ),
        workers=Gauge("attune_workers", "Workers by status.", ["status"], registry=registry),
        outbox_rows=Gauge("attune_outbox_rows", "Messages committed and not yet carried.", registry=registry),
        outbox_oldest_seconds=Gauge(
            "attune_outbox_oldest_seconds", "Age of the oldest due message.", registry=registry
        ),
        sweep_actions=Counter(
            "attune_sweep_actions_total", "What recovery sweeps had to mend.", ["sweep"], registry=registry
        ),
        fenced_writes=Counter(
            "attune_fenced_writes_total",
            "Writes refused because their attempt was no longer current.",
            registry=registry,
        ),
        conflicts=Counter(
            "attune_conflicts_total", "Messages dropped because the world had moved on.", registry=registry
        ),
        dead_letters=Counter("attune_dead_letters_total", "Messages parked or expired.", ["reason"], registry=registry),
    )
