"""What was measured as one document: a row for each workload, medians and ranges over the repetitions, ratios."""

import dataclasses
import os
import platform
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attune import __version__
from attune.cli.bench.measure import Run
from attune.cli.bench.paced import is_reached
from attune.cli.bench.run import Findings
from attune.cli.bench.workloads import Workload
from attune.cli.render import Column, Record, View, column

BROKEN: Final = ("inversions", "over_limit", "lost", "duplicated", "unexplained")


def document_of(findings: Findings, *, transport: str) -> dict[str, object]:
    """Everything, as machines read it."""
    rows = [
        _row(workload, runs, _runs_of(findings.one_by_one, workload), transport=transport)
        for workload, runs in _by_workload(findings.runs)
    ]
    return {
        "workloads": rows,
        "ratios": _ratios(rows, findings),
        "machine": [dataclasses.asdict(each) for each in findings.machine],
        "idle": dataclasses.asdict(findings.idle) if findings.idle else None,
        "version": __version__,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
    }


def is_clean(rows: Iterable[Record]) -> bool:
    """Whether no witness found anything."""
    return not any(row[name] for row in rows for name in BROKEN)


def _same(one: Workload, other: Workload) -> bool:
    return one.title == other.title


def _runs_of(runs: Iterable[Run], workload: Workload) -> list[Run]:
    return [run for run in runs if _same(run.workload, workload)]


def _by_workload(runs: Sequence[Run]) -> list[tuple[Workload, list[Run]]]:
    firsts = {run.workload.title: run.workload for run in reversed(runs)}
    return [(each, _runs_of(runs, each)) for each in reversed(firsts.values())]


def _row(workload: Workload, runs: Sequence[Run], singly: Sequence[Run], *, transport: str) -> dict[str, object]:
    speeds = [run.per_second for run in runs]
    return {
        "name": workload.name,
        "runtime": workload.runtime,
        "transport": transport,
        "executions": workload.executions,
        "limit": workload.limit,
        "per_second": statistics.median(speeds),
        "one_by_one_per_second": statistics.median(run.per_second for run in singly) if singly else None,
        "start_ms": _median_spread([dataclasses.asdict(run.start_ms) for run in runs]),
        # What the one-by-one runs broke is broken, too.
        **{name: sum(getattr(run.verdict, name) for run in [*runs, *singly]) for name in BROKEN},
        "actions": workload.actions,
        "executors": workload.executors,
        "like": workload.like,
        "backlog": workload.backlog,
        **_paced(workload, runs),
        "kills": dict(sum((Counter(run.kills) for run in runs), Counter())),
        "repeated": sum(run.repeated for run in runs),
        "repetitions": len(runs),
        "per_second_range": [min(speeds), max(speeds)],
        "slot_to_start_ms": _median_spread([dataclasses.asdict(run.slot_to_start_ms) for run in runs]),
        "done_ms": _median_spread([dataclasses.asdict(run.done_ms) for run in runs]),
        "cpu_us_per_execution": _median_spread([run.cpu_us for run in runs]),
        "commits_per_execution": statistics.median(run.commits_per_execution for run in runs),
        "memory_mb": _median_spread([run.memory_mb for run in runs]),
    }


def _paced(workload: Workload, runs: Sequence[Run]) -> dict[str, object]:
    """Whether the rate was kept up in every repetition; nothing of the kind elsewhere."""
    rate = workload.rate
    if rate is None:
        return {"rate": None, "rate_reached": None, "sent_per_second": None, "late_ms": {}}
    return {
        "rate": rate,
        "rate_reached": all(is_reached(rate, sent=run.sent_per_second or 0, done=run.per_second) for run in runs),
        "sent_per_second": statistics.median(run.sent_per_second or 0 for run in runs),
        "late_ms": _median_spread([dataclasses.asdict(run.late_ms) for run in runs if run.late_ms] or [{}]),
    }


def _median_spread(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each name that all have."""
    names = [name for name in several[0] if all(name in each for each in several)]
    return {name: round(statistics.median(each[name] for each in several), 2) for name in names}


def _ratios(rows: Sequence[Mapping[str, object]], findings: Findings) -> dict[str, float]:
    """Figures of the same run against each other: they outlive the machine they were taken on."""
    found: dict[str, float] = {}
    for row in rows:
        title = f"{row['name']} {row['runtime']}"
        found |= _ratio(f"{title}: batched / one by one", row["per_second"], row["one_by_one_per_second"])
    speeds = {(row["like"], row["executors"]): row["per_second"] for row in rows if row["name"] == "W6"}
    for (like, executors), speed in speeds.items():
        if executors != 1:
            found |= _ratio(f"W6 like {like}: {executors} executors / 1", speed, speeds.get((like, 1)))
    lengths = [row for row in rows if row["name"] == "W5"]
    for row in lengths[1:]:
        title = f"W5: {row['backlog']:,} waiting / {lengths[0]['backlog']:,}"
        found |= _ratio(f"{title}, admission CPU", _admission_cpu(row), _admission_cpu(lengths[0]))
        found |= _ratio(f"{title}, executor memory", _executor_memory(row), _executor_memory(lengths[0]))
    return found | _against_machine(rows, findings)


def _against_machine(rows: Sequence[Mapping[str, object]], findings: Findings) -> dict[str, float]:
    if not findings.machine:
        return {}
    spawns = statistics.median(each.spawns_per_second for each in findings.machine)
    pythons = statistics.median(each.pythons_per_second for each in findings.machine)
    commits = statistics.median(each.commits_per_second for each in findings.machine)
    found: dict[str, float] = {}
    for row in rows:
        if row["runtime"] == "shell":
            found |= _ratio(f"{row['name']} shell / spawning nothing else", row["per_second"], spawns)
        if row["runtime"] == "python":
            found |= _ratio(f"{row['name']} python / starting a cold Python", row["per_second"], pythons)
        if row["runtime"] == "native" and row["name"] == "W3":
            found |= _ratio("W3 native / one client's commits", row["per_second"], commits)
    return found


def _ratio(name: str, above: object, below: object) -> dict[str, float]:
    if not isinstance(above, int | float) or not isinstance(below, int | float) or not below:
        return {}
    return {name: round(above / below, 2)}


def _admission_cpu(row: Mapping[str, object]) -> float:
    """Of those that admit: the database and the executor."""
    return sum(_numbers(row, "cpu_us_per_execution", ("postgres", "executor-1")))


def _executor_memory(row: Mapping[str, object]) -> float:
    return sum(_numbers(row, "memory_mb", ("executor-1",)))


def _numbers(row: Mapping[str, object], key: str, names: Sequence[str]) -> list[float]:
    values = row[key]
    return [float(values[name]) for name in names if name in values] if isinstance(values, dict) else []


def _flaws(record: Record) -> str:
    return ", ".join(f"{record[name]} {name}" for name in BROKEN if record[name]) or "none"


def _rate(record: Record) -> str:
    """A rate that was not kept up must not look like one that was."""
    return str(record["rate"] or "") + ("" if record["rate_reached"] in {True, None} else " (not reached)")


def _cpu(record: Record) -> str:
    return str(round(sum(_numbers(record, "cpu_us_per_execution", list(_dict(record, "cpu_us_per_execution"))))))


def _dict(record: Record, key: str) -> dict[str, object]:
    found = record[key]
    return found if isinstance(found, dict) else {}


def _pair(key: str) -> Column:
    return Column(
        title=f"{key} p50/p99",
        cell=lambda record: "/".join(f"{value:g}" for value in _dict(record, key).values()),
        wide=key == "done_ms",
    )


VIEW: Final = View(
    columns=[
        column("name"),
        column("runtime"),
        column("executions"),
        column("limit"),
        column("executors"),
        column("backlog"),
        Column(title="rate", cell=_rate),
        column("per_second"),
        column("one_by_one", "one_by_one_per_second"),
        _pair("start_ms"),
        _pair("slot_to_start_ms"),
        _pair("done_ms"),
        Column(title="cpu_us", cell=_cpu),
        column("commits", "commits_per_execution"),
        Column(title="broken", cell=_flaws),
        column("cpu_us_by_process", "cpu_us_per_execution", wide=True),
        column("kills", wide=True),
        column("repeated", wide=True),
    ],
    name="name",
    value="per_second",
)
