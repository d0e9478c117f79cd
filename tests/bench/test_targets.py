"""Figures against their targets: which way is better, and that nothing measured is never taken for met."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from bench.collect import Row, merge_rows
from bench.page import groups_of, title, write_page
from bench.plot import Bar, Group, draw
from bench.targets import Figures, Verdict, judge

MACHINE = {
    "before": "attune postgres",
    "idle_percent": 99.0,
    "fdatasync_us": 90.0,
    "commits_per_second": 2_000.0,
    "spawns_per_second": 1_000.0,
    "pythons_per_second": 100.0,
}


def row(
    name: str, per_second: float, *, system: str = "attune postgres", runtime: str = "native", **more: object
) -> Row:
    return {
        "system": system,
        "name": name,
        "runtime": runtime,
        "like": None,
        "executors": 1,
        "backlog": 0,
        "rate": None,
        "executions": 10,
        "limit": 10,
        "actions": 1,
        "per_second": per_second,
        "start_ms": {"p50": 5.0, "p99": 40.0},
        "cpu_us_per_execution": {"postgres": 300},
        **more,
    }


def verdicts(*rows: Row) -> dict[str, Verdict]:
    figures = Figures(rows=merge_rows(rows), machine=[MACHINE])
    return {each.text: each for each in judge(figures)}


def test_nothing_measured_is_said() -> None:
    found = Figures(rows=[], machine=[])

    assert {each.verdict for each in judge(found)} == {"not measured"}


def test_a_ratio_is_that_of_the_same_workload() -> None:
    found = verdicts(row("W2", 2_000.0), row("W2", 1_000.0, system="celery"), row("W3", 9.0, system="celery"))

    assert found["W2 native / Celery"].value == 2.0
    assert found["W2 native / Celery"].verdict == "met"
    assert found["W3 native / Celery"].verdict == "not measured"


def test_more_is_better_for_speeds() -> None:
    speeds = {"missed": 199.0, "met": 200.0, "stretch": 800.0}
    text = "W1 native, per second in the slowest repetition"

    assert {name: verdicts(row("W1", speed))[text].verdict for name, speed in speeds.items()} == {
        name: name for name in speeds
    }


def test_the_slowest_repetition_counts_for_what_must_hold_in_every_run() -> None:
    found = verdicts(row("W1", 900.0), row("W1", 150.0), row("W1", 900.0))

    assert found["W1 native, per second in the slowest repetition"].verdict == "missed"


def test_less_is_better_for_waiting() -> None:
    found = verdicts(row("W4", 500.0, rate=500, rate_reached=True, sent_per_second=500.0))

    assert found["W4 at 500 per second, request → running p50, ms"].verdict == "met"
    assert found["W4 at 500 per second, request → running p99, ms"].verdict == "missed"


def document() -> dict[str, object]:
    rows = merge_rows(
        [
            row("W2", 2_000.0),
            row("W2", 1_000.0, system="celery", inversions=3),
            row("W4", 400.0, rate=500, rate_reached=False, sent_per_second=410.0),
            row("W7", 90.0, kills={"postgres": 1}, repeated=4),
        ]
    )
    peers = [
        {"name": "celery", "version": "5", "settings": "its own", "lacks": ["no record"], "failure": None},
        {"name": "dbos", "version": "3", "settings": "its own", "lacks": [], "failure": "no packages"},
    ]
    return {
        "command": "--quick",
        "date": "2026-01-01",
        "processors": 2,
        "python": "3.11",
        "version": "1",
        "repeat": 1,
        "rows": rows,
        "peers": peers,
        "targets": [],
        "machine": [MACHINE],
    }


def test_the_page_hides_neither_a_failure_nor_a_rate_that_was_missed() -> None:
    page = write_page(document(), plot="quick.svg")

    assert "no packages" in page
    assert "not reached: 410 sent" in page
    assert "postgres ×1; 4 further attempts" in page
    assert "3 inversions" in page
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_the_plot_is_a_picture_with_a_bar_for_each_system() -> None:
    groups = groups_of(document())
    picture = draw("figures <of> today", groups)

    assert groups[0].title == "W2: 10 of one action, limit 10 (executions per second)"
    ET.fromstring(picture)  # noqa: S314  made a line above
    assert [bar.label for group in groups for bar in group.bars] == ["Attune postgres, native", "celery"]
    assert picture.count('class="ours"') == 1
    assert picture.count('class="peer"') == 1
    assert "prefers-color-scheme: dark" in picture


def test_the_longest_bar_fills_the_scale_and_nothing_measured_has_none() -> None:
    bars = [Bar(label="fast", value=100.0), Bar(label="slow", value=50.0), Bar(label="none", value=None)]
    picture = draw("t", [Group(title="g", bars=bars)])
    widths = [float(each) for each in re.findall(r'class="peer"[^>]*width="([0-9.]+)"', picture)]

    assert widths == [510.0, 255.0]
    assert "not measured" in picture


def test_a_title_tells_rows_of_one_workload_apart() -> None:
    (found,) = merge_rows([row("W6", 1.0, like="W3", executors=3)])

    assert title(found) == "W6 native like W3, 3 executors"
