"""What was measured as a page to read: tables, the targets, what each peer leaves out, and the plot. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bench.collect import BROKEN, Document, Row
from bench.plot import Bar, Group

PLOTTED = ("W1", "W2", "W3")


def write_page(document: Document, *, plot: str) -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Figures",
            "",
            _origin(document),
            "",
            f"![Executions per second]({plot})",
            "",
            *_section("Targets", _targets(document)),
            *_section("Attune", _ours(document["rows"])),
            *_section("Peers in the same run", _peers(document)),
            *_section("The machine before each part", _machine(document["machine"])),
        ]
    )


def _origin(document: Document) -> str:
    return (
        f"Made by `make bench` ({document['command']}) on {document['date']}: {document['processors']} processors, "
        f"Python {document['python']}, version {document['version']}, {document['repeat']} repetition(s). "
        "Medians, with the least and the most. Compare figures within this page only."
    )


def _section(title: str, lines: Iterable[str]) -> list[str]:
    return [f"## {title}", "", *lines, ""]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """As Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |"


def _targets(document: Document) -> Iterator[str]:
    yield from table(
        ["what", "measured", "target", "stretch", "verdict"],
        [
            [each["text"], _number(each["value"]), each["target"], each["stretch"], each["verdict"]]
            for each in document["targets"]
        ],
    )


def _ours(rows: Sequence[Row]) -> Iterator[str]:
    yield from table(
        ["workload", "transport", "per second", "range", "one by one", "start p50 / p99 ms", "CPU µs", "broken"],
        [
            [
                title(row),
                row["system"].removeprefix("attune "),
                f"{row['per_second']:,.0f}",
                _range(row),
                _number(row.get("one_by_one_per_second")),
                " / ".join(f"{each:,g}" for each in row["start_ms"].values()),
                f"{sum(row['cpu_us_per_execution'].values()):,.0f}",
                flaws(row),
            ]
            for row in rows
            if row["system"].startswith("attune ")
        ],
    )


def _peers(document: Document) -> Iterator[str]:
    rows = []
    for peer in document["peers"]:
        own = [row for row in document["rows"] if row["system"] == peer["name"]]
        speeds = [f"{row['name']}: {row['per_second']:,.0f} ({_range(row)}; {row['executions']:,})" for row in own]
        wrong = [f"{row['name']}: {flaws(row)}" for row in own if flaws(row) != "none"]
        rows.append(
            [
                f"{peer['name']} {peer['version']}",
                "<br>".join(speeds) or "—",
                "<br>".join(wrong) or "—",
                peer["settings"],
                "; ".join(peer["lacks"]),
                peer["failure"] or "—",
            ]
        )
    head = ["peer", "per second (range; tasks)", "seen", "settings", "not done in that figure", "failure"]
    yield from table(head, rows)
    yield ""
    yield (
        "Counted alike: from the first request sent to the last effect done. A peer's task appends a line to a file; "
        "*seen* is what those lines show of order, losses and doubles, promised or not. An execution of ours counts "
        "when its end is recorded."
    )


def _machine(machine: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = ("idle_percent", "fdatasync_us", "commits_per_second", "spawns_per_second", "pythons_per_second")
    rows: list[list[object]] = [[each["before"], *(each[name] for name in names)] for each in machine]
    if machine:
        rows.append(["**median**", *(round(statistics.median(each[name] for each in machine), 1) for name in names)])
    head = ["before", "idle %", "fdatasync p50 µs", "commits/s of one client", "`sh` starts/s", "Python starts/s"]
    yield from table(head, rows)


def title(row: Row) -> str:
    """A row's name and what sets it apart."""
    more = f" like {row['like']}, {row['executors']} executors" if row["like"] else ""
    more += f" at {row['backlog']:,} waiting" if row["backlog"] else ""
    if row["rate"]:
        more += f" at {row['rate']:,} per second"
        more += "" if row["rate_reached"] else f" (not reached: {row['sent_per_second']:,.0f} sent)"
    if row.get("kills"):
        killed = ", ".join(f"{name} ×{count}" for name, count in row["kills"].items())
        more += f", killed: {killed}; {row['repeated']} further attempts"
    return f"{row['name']} {row['runtime']}{more}"


def flaws(row: Row) -> str:
    """Which promises were broken, and how often."""
    return ", ".join(f"{row[name]} {name}" for name in BROKEN if row.get(name)) or "none"


def groups_of(document: Document) -> list[Group]:
    """What is compared in the plot."""
    found = []
    for name in PLOTTED:
        rows = [row for row in document["rows"] if row["name"] == name]
        bars = [_bar(row) for row in rows if row["system"] == "attune postgres" or row["runtime"] == "native"]
        if bars:
            found.append(Group(title=_headline(rows[0]), bars=bars))
    return found


def _headline(row: Row) -> str:
    spread = f"over {row['actions']} actions" if row["actions"] > 1 else "of one action"
    limit = f", limit {row['limit']}" if row["limit"] else ""
    return f"{row['name']}: {row['executions']:,} {spread}{limit} (executions per second)"


def _bar(row: Row) -> Bar:
    ours = row["system"].startswith("attune ")
    low, high = row["per_second_range"]
    label = f"{row['system'].replace('attune', 'Attune')}, {row['runtime']}" if ours else row["system"]
    note = "" if ours else "limit held, no order" if row["limit"] else "no limit, no order"
    return Bar(label=label, value=row["per_second"], low=low, high=high, ours=ours, note=note)


def _range(row: Row) -> str:
    low, high = row["per_second_range"]
    return f"{low:,.0f} to {high:,.0f}"


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,g}"
