"""The numbers that are published about the platform, in Prometheus' format.

Every process counts for itself and adds its counts to the database now and then; gauges are read from the database when
somebody asks. So one API tells the numbers of the whole platform. Labels have few values: a status, a reason, a sweep,
an action, the scope of a line. Never an execution, a worker or a group. Histograms have no labels.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from attune.runtime.counts import Count, Labels

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_START_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_TO_RUNNING: Final = "Time from accepting an execution to its first start on a worker."
# What is counted everywhere and told as one.
_COUNTED: Final = frozenset({"counter", "histogram"})
# When a process began to count; meaningless for what many counted.
_CREATED: Final = "_created"
# Codes of executions that ended because some time was up.
_TIMEOUTS: Final = frozenset({"timeout", "queue_timeout", "scheduled_timeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """One process's metrics; bind label children once where they are counted often."""

    registry: CollectorRegistry
    executions: Counter
    action_executions: Counter
    execution_timeouts: Counter
    request_to_running_seconds: Histogram
    sweep_actions: Counter
    fenced_writes: Counter
    conflicts: Counter
    dead_letters: Counter
    dead_letter_depth: Gauge
    workers: Gauge
    outbox_rows: Gauge
    outbox_oldest_seconds: Gauge
    line_waiting: Gauge
    line_active: Gauge
    line_limit: Gauge
    line_oldest_seconds: Gauge
    line_wait_seconds: Gauge
    dead_letter_latency_seconds: Histogram
    executions_failed_by_dead_letter: Counter
    alerts: Counter
    alerts_firing: Gauge

    def counts(self) -> Iterator[Count]:
        """What this process has counted since it began."""
        for family in self.registry.collect():
            if _is_counted(family):
                for sample in family.samples:
                    if not sample.name.endswith(_CREATED):
                        yield Count(name=sample.name, labels=_sorted(sample.labels), value=sample.value)

    def count_ended(self, ended: Mapping[tuple[str, str, str | None], int]) -> None:
        """Note executions that ended, by action, status and code."""
        for (action, status, code), number in ended.items():
            self.executions.labels(status=status).inc(number)
            self.action_executions.labels(action=action, status=status).inc(number)
            if code in _TIMEOUTS:
                self.execution_timeouts.labels(by=code).inc(number)

    def render(self, counted: Iterable[Count]) -> bytes:
        """What `/metrics` answers, with CONTENT_TYPE: this process's gauges, and what all processes counted."""
        return generate_latest(_Together(self.registry, counted))


class _Together(Collector):
    """A process's metrics with the counts of all processes in the place of its own."""

    def __init__(self, own: CollectorRegistry, counted: Iterable[Count]) -> None:
        self._own = own
        self._counted: dict[str, dict[Labels, float]] = {}
        for count in counted:
            self._counted.setdefault(count.name, {})[count.labels] = count.value

    def collect(self) -> Iterator[Metric]:
        for family in self._own.collect():
            yield self._replaced(family) if _is_counted(family) else family

    def _replaced(self, family: Metric) -> Metric:
        known = {(sample.name, _sorted(sample.labels)) for sample in family.samples}
        told = Metric(family.name, family.documentation, family.type)
        for sample in family.samples:
            if not sample.name.endswith(_CREATED):
                stored = self._counted.get(sample.name, {}).get(_sorted(sample.labels), 0.0)
                told.add_sample(sample.name, sample.labels, stored)
        if family.type == "counter":
            # Labels that only other processes have counted. A histogram's are its bounds, which are the same for all.
            name = f"{family.name}_total"
            for labels, value in self._counted.get(name, {}).items():
                if (name, labels) not in known:
                    told.add_sample(name, dict(labels), value)
        return told


def _is_counted(family: Metric) -> bool:
    # What a process tells of itself, like its processor time, is no business of the others.
    return family.type in _COUNTED and family.name.startswith("attune_")


def _sorted(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def build_metrics(*, version: str, service: str) -> Metrics:
    """Fresh metrics on a registry of their own; nothing global is touched."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Info("attune_build", "What is running.", registry=registry)
    build.info({"version": version, "service": service, "python": platform.python_version()})

    def counter(name: str, doc: str, *labels: str) -> Counter:
        return Counter(f"attune_{name}_total", doc, labels, registry=registry)

    def gauge(name: str, doc: str, *labels: str) -> Gauge:
        return Gauge(f"attune_{name}", doc, labels, registry=registry)

    def seconds(name: str, doc: str) -> Histogram:
        return Histogram(f"attune_{name}_seconds", doc, buckets=_START_BUCKETS, registry=registry)

    return Metrics(
        registry=registry,
        executions=counter("executions", "Executions that ended.", "status"),
        action_executions=counter("action_executions", "Executions of an action that ended.", "action", "status"),
        execution_timeouts=counter("execution_timeouts", "Executions that ended because a time was up.", "by"),
        request_to_running_seconds=seconds("request_to_running", _TO_RUNNING),
        sweep_actions=counter("sweep_actions", "What recovery sweeps had to mend.", "sweep"),
        fenced_writes=counter("fenced_writes", "Writes refused because their attempt was no longer current."),
        conflicts=counter("conflicts", "Messages dropped because the world had moved on."),
        dead_letters=counter("dead_letters", "Messages parked or expired.", "reason"),
        dead_letter_depth=gauge("dead_letter_depth", "Dead letters that nobody has dealt with."),
        workers=gauge("workers", "Workers by status.", "status"),
        outbox_rows=gauge("outbox_rows", "Messages committed and not yet carried."),
        outbox_oldest_seconds=gauge("outbox_oldest_seconds", "Age of the oldest due message."),
        line_waiting=gauge("line_waiting", "Executions that wait in the lines of a scope.", "scope"),
        line_active=gauge("line_active", "Executions that hold a slot of a scope's lines.", "scope"),
        line_limit=gauge("line_limit", "The lowest limit in force in the lines of a scope.", "scope"),
        line_oldest_seconds=gauge("line_oldest_seconds", "How long the oldest in a scope's lines has waited.", "scope"),
        line_wait_seconds=gauge(
            "line_wait_seconds",
            "How long those waited who were admitted in the last full minute.",
            "scope",
            "quantile",
        ),
        dead_letter_latency_seconds=seconds(
            "dead_letter_latency", "Time from the death of a dispatch to what followed from it."
        ),
        executions_failed_by_dead_letter=counter(
            "executions_failed_by_dead_letter", "Executions that failed because no worker took them in time."
        ),
        alerts=counter("alerts", "Alerts that were raised.", "name"),
        alerts_firing=gauge("alerts_firing", "Alerts that stand open.", "name"),
    )
