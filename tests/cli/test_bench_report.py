"""What `attune bench` makes of its runs: medians, ranges, ratios, and a verdict that cannot be overlooked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attune.cli.bench.judge import Verdict
from attune.cli.bench.machine import Machine
from attune.cli.bench.measure import Run, Spread, spread
from attune.cli.bench.report import document_of, is_clean
from attune.cli.bench.run import Findings
from attune.cli.bench.workloads import Workload, one_by_one, replica_workloads, simple_workloads

CLEAN = Verdict(inversions=0, over_limit=0, lost=0, duplicated=0)
W1 = Workload(name="W1", runtime="shell", executions=1000, limit=5)


def made(workload: Workload = W1, *, per_second: float, verdict: Verdict = CLEAN, cpu_us: int = 100) -> Run:
    return Run(
        workload=workload,
        per_second=per_second,
        verdict=verdict,
        start_ms=Spread(p50=per_second, p99=2 * per_second),
        slot_to_start_ms=Spread(p50=1, p99=2),
        done_ms=Spread(p50=1, p99=2),
        cpu_us={"postgres": cpu_us, "executor-1": cpu_us, "worker-1": 7},
        commits_per_execution=0.5,
        memory_mb={"executor-1": 40.0},
    )


def rows(findings: Findings) -> list[dict[str, object]]:
    found = document_of(findings, transport="postgres")["workloads"]
    assert isinstance(found, list)
    return found


def ratios(findings: Findings) -> dict[str, float]:
    found = document_of(findings, transport="postgres")["ratios"]
    assert isinstance(found, dict)
    return found


def test_repetitions_become_a_median_and_a_range() -> None:
    (row,) = rows(Findings(runs=[made(per_second=speed) for speed in (300, 100, 200)]))

    assert row["per_second"] == 200
    assert row["per_second_range"] == [100, 300]
    assert row["start_ms"] == {"p50": 200, "p99": 400}
    assert row["repetitions"] == 3


@pytest.mark.parametrize("name", ["inversions", "over_limit", "lost", "duplicated", "unexplained"])
def test_a_broken_promise_in_any_repetition_is_not_clean(name: str) -> None:
    broken = replace(CLEAN, **{name: 2})

    assert is_clean(rows(Findings(runs=[made(per_second=1), made(per_second=1)])))
    (row,) = rows(Findings(runs=[made(per_second=1), made(per_second=1, verdict=broken), made(per_second=1)]))
    assert row[name] == 2
    assert not is_clean([row])


def test_a_promise_broken_while_handling_one_by_one_counts_too() -> None:
    broken = replace(CLEAN, lost=1)
    found = rows(Findings(runs=[made(per_second=1)], one_by_one=[made(per_second=1, verdict=broken)]))

    assert found[0]["lost"] == 1


def test_figures_of_one_run_are_compared_with_each_other() -> None:
    machine = Machine(
        idle_percent=99, fdatasync_us=100, commits_per_second=1000, spawns_per_second=1500, pythons_per_second=100
    )
    found = ratios(
        Findings(runs=[made(per_second=900)], one_by_one=[made(one_by_one(W1), per_second=90)], machine=[machine])
    )

    assert found == {"W1 shell: batched / one by one": 10.0, "W1 shell / spawning nothing else": 0.6}


def test_longer_backlogs_are_compared_with_the_shortest() -> None:
    short = Workload(name="W5", runtime="native", executions=1000, limit=10, backlog=1000)
    long = replace(short, backlog=100_000)
    found = ratios(Findings(runs=[made(short, per_second=9, cpu_us=100), made(long, per_second=9, cpu_us=120)]))

    assert found == {
        "W5: 100,000 waiting / 1,000, admission CPU": 1.2,
        "W5: 100,000 waiting / 1,000, executor memory": 1.0,
    }


def test_more_executors_are_compared_with_one() -> None:
    speeds = {1: 100.0, 2: 90.0, 3: 80.0}
    runs = [made(each, per_second=speeds[each.executors]) for each in replica_workloads(quick=True, executions=None)]

    found = ratios(Findings(runs=runs))

    assert found["W6 like W3: 3 executors / 1"] == 0.8
    assert found["W6 like W2: 2 executors / 1"] == 0.9


def test_workloads_never_share_an_action() -> None:
    chosen = [
        *simple_workloads(["W0", "W1", "W2", "W3"], ["native", "shell"], quick=False, executions=None),
        *replica_workloads(quick=False, executions=None),
    ]
    refs = [ref for workload in chosen for ref in workload.refs]

    assert len(refs) == len(set(refs))


def test_the_worst_of_a_hundred_is_found_by_rank() -> None:
    assert spread([float(value) for value in range(1, 101)]) == Spread(p50=50, p99=99)
    assert spread([7.0]) == Spread(p50=7, p99=7)
    assert spread([]) == Spread(p50=0, p99=0)
