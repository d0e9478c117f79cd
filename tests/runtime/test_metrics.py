"""What is promised about metrics: the documented names, and no state shared between two sets."""

from attune.runtime.metrics import build_metrics


def test_the_documented_names_are_exposed() -> None:
    metrics = build_metrics(version="1.2.3", service="executor")
    metrics.executions.labels(status="succeeded").inc()
    metrics.workers.labels(status="active").set(2)
    metrics.sweep_actions.labels(sweep="lost_workers").inc()
    metrics.dead_letters.labels(reason="expired").inc()
    metrics.request_to_running_seconds.observe(0.02)

    lines = metrics.render().decode().splitlines()

    assert 'attune_executions_total{status="succeeded"} 1.0' in lines
    assert 'attune_workers{status="active"} 2.0' in lines
    assert 'attune_sweep_actions_total{sweep="lost_workers"} 1.0' in lines
    assert 'attune_dead_letters_total{reason="expired"} 1.0' in lines
    assert 'attune_request_to_running_seconds_bucket{le="0.025"} 1.0' in lines
    for name in ("outbox_rows", "outbox_oldest_seconds", "fenced_writes_total", "conflicts_total"):
        assert f"attune_{name} 0.0" in lines
    assert any(line.startswith("attune_build_info{") and 'version="1.2.3"' in line for line in lines)
    assert any(line.startswith("process_resident_memory_bytes") for line in lines)


def test_two_sets_share_nothing() -> None:
    first, second = (build_metrics(version="1", service="api") for _ in range(2))
    first.conflicts.inc()

    assert "attune_conflicts_total 1.0" in first.render().decode()
    assert "attune_conflicts_total 0.0" in second.render().decode()
