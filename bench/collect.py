"""Repetitions become one document: medians, ranges and sums of what each of them found. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.peers.measure import PeerRun

Row = dict[str, Any]
Document = dict[str, Any]

KEY = ("system", "name", "runtime", "like", "executors", "backlog", "rate")
MEDIANS = ("per_second", "one_by_one_per_second", "commits_per_execution", "sent_per_second")
SPREADS = ("start_ms", "slot_to_start_ms", "done_ms", "late_ms", "cpu_us_per_execution", "memory_mb")
SUMS = ("inversions", "over_limit", "lost", "duplicated", "unexplained", "repeated")
BROKEN = ("inversions", "over_limit", "lost", "duplicated", "unexplained")


def rows_of(document: Mapping[str, Any], transport: str) -> list[Row]:
    """What `attune bench` said, as rows of a larger table."""
    return [{**row, "system": f"attune {transport}"} for row in document["workloads"]]


def row_of_peer(name: str, run: PeerRun) -> Row:
    """In the same words."""
    workload = run.workload
    fixed = {"like": None, "executors": None, "backlog": 0, "rate": None}
    counted = {key: getattr(run, key) for key in ("executions", "per_second", "lost", "duplicated", "inversions")}
    return {
        "system": name,
        "name": workload.name,
        "runtime": "native",
        "limit": workload.limit or None,
        "actions": workload.actions,
        **fixed,
        **counted,
        "cpu_us_per_execution": dict(run.cpu_us),
    }


def merge_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows of the same measurement become one, in the order they first came."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in KEY), []).append(row)
    return [_merge(several) for several in groups.values()]


def _merge(several: Sequence[Row]) -> Row:
    merged = dict(several[0])
    speeds = [row["per_second"] for row in several]
    for name in MEDIANS:
        values = [row[name] for row in several if row.get(name) is not None]
        if values:
            merged[name] = round(statistics.median(values), 2)
    for name in SPREADS:
        merged[name] = _median_of_each([row.get(name) or {} for row in several])
    for name in SUMS:
        if name in merged:
            merged[name] = sum(row[name] for row in several)
    ranges = [each for row in several for each in row.get("per_second_range") or ()]
    merged["per_second_range"] = [min([*speeds, *ranges]), max([*speeds, *ranges])]
    merged["kills"] = dict(sum((Counter(row.get("kills") or {}) for row in several), Counter()))
    reached = [row["rate_reached"] for row in several if row.get("rate_reached") is not None]
    merged["rate_reached"] = all(reached) if reached else None
    merged["repetitions"] = sum(row.get("repetitions", 1) for row in several)
    return merged


def _median_of_each(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in several[0] if all(name in each for each in several)]
    return {name: round(statistics.median(each[name] for each in several), 2) for name in names}


def is_clean(rows: Sequence[Row]) -> bool:
    """Whether every promise of ours was kept; peers promise other things."""
    return not any(row.get(name) for row in rows if row["system"].startswith("attune ") for name in BROKEN)
