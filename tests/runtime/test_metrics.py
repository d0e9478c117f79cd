"""What is promised about metrics: the counts of all processes are told, and two sets share nothing."""

from attune.runtime.metrics import Metrics, build_metrics


def test_what_all_processes_counted_is_told_in_the_place_of_the_own_counts() -> None:
    api, worker = (build_metrics(version="1.2.3", service=service) for service in ("api", "worker"))
    worker.executions.labels(status="succeeded").inc()
    worker.request_to_running_seconds.observe(0.02)
    api.executions.labels(status="failed").inc()
    api.workers.labels(status="active").set(2)

    lines = api.render(worker.counts()).decode().splitlines()

    assert 'attune_executions_total{status="succeeded"} 1.0' in lines
    assert 'attune_executions_total{status="failed"} 0.0' in lines, "it is told when it is stored"
    assert 'attune_workers{status="active"} 2.0' in lines
    assert 'attune_request_to_running_seconds_bucket{le="0.01"} 0.0' in lines
    assert 'attune_request_to_running_seconds_bucket{le="0.025"} 1.0' in lines
    assert "attune_fenced_writes_total 0.0" in lines
    assert any(line.startswith("attune_build_info{") and 'version="1.2.3"' in line for line in lines)
    assert any(line.startswith("process_resident_memory_bytes") for line in lines)


def test_two_sets_share_nothing() -> None:
    first, second = (build_metrics(version="1", service="api") for _ in range(2))
    first.conflicts.inc()

    def conflicts(metrics: Metrics) -> float:
        return next(count.value for count in metrics.counts() if count.name == "attune_conflicts_total")

    assert (conflicts(first), conflicts(second)) == (1, 0)
