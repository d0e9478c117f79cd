"""The closing table: which suite ran on which transport, and what did not run, why, and what would cure it.

On a build machine (CI=true) something that did not run counts as a failure: a green run must mean that all was seen.
Only what another account than root cannot do is no failure there, because no program would cure it.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NoReturn

import pytest

TRANSPORT = "transport"
NO_TRANSPORT = "-"
ONLY_ROOT = "only root"


def not_run(reason: str, *, cure: str) -> NoReturn:
    """Give up on a test whose server or program is not on this machine."""
    pytest.skip(f"{reason.strip()}; cure: {cure}")


@dataclass(kw_only=True)
class Row:
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def describe(self) -> str:
        parts = []
        ran = self.outcomes["passed"] + self.outcomes["failed"]
        if ran:
            failed = f", {self.outcomes['failed']} failed" if self.outcomes["failed"] else ""
            parts.append(f"ran {ran}{failed}")
        parts += [f"NOT RUN {count} ({reason})" for reason, count in self.reasons.items()]
        return "; ".join(parts)


class ClosingTable:
    """Counts what the processes of a run report, and prints one line for each suite and transport."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = defaultdict(Row)
        self.skipped_modules: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.rows[suite_of(report.nodeid), str(dict(report.user_properties).get(TRANSPORT, NO_TRANSPORT))]
        if report.skipped and not hasattr(report, "wasxfail"):
            row.reasons[reason_of(report)] += 1
        elif report.when == "call" or report.failed:
            row.outcomes["failed" if report.failed else "passed"] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module may be skipped whole; each process of a parallel run reports it."""
        if report.skipped and report.nodeid not in self.skipped_modules:
            self.skipped_modules.add(report.nodeid)
            self.rows[suite_of(report.nodeid), NO_TRANSPORT].reasons[reason_of(report)] += 1

    @property
    def not_run(self) -> int:
        reasons = sum((row.reasons for row in self.rows.values()), Counter[str]())
        return sum(count for reason, count in reasons.items() if not reason.startswith(ONLY_ROOT))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.not_run and on_build_machine() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.rows:
            return
        write = terminalreporter.write_line
        terminalreporter.section("what ran where")
        width = max(len(suite) for suite, _ in self.rows)
        for (suite, transport), row in sorted(self.rows.items()):
            write(f"{suite:<{width}}  {transport:<9}  {row.describe()}")
        if self.not_run and on_build_machine():
            write(f"FAILED: CI=true, and {self.not_run} did not run")


def on_build_machine() -> bool:
    return os.environ.get("CI") == "true"


def suite_of(nodeid: str) -> str:
    """The folder below tests/, or the file for those directly in it."""
    parts = PurePath(nodeid.partition("::")[0]).parts
    below = parts[1:] if parts[:1] == ("tests",) else parts
    return below[0].removesuffix(".py") if below else nodeid


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())


def transport_of(item: pytest.Item) -> str:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if isinstance(parameters.get(TRANSPORT), str):
        return str(parameters[TRANSPORT])
    return "rabbitmq" if item.get_closest_marker("rabbitmq") else NO_TRANSPORT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a test says about itself travels with its report from process to process."""
    for item in items:
        item.user_properties.append((TRANSPORT, transport_of(item)))


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ClosingTable(), "closing-table")
