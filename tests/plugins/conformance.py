"""The table of the conformance suite: for every runtime and case whether it ran, and if not, why."""

from __future__ import annotations

import pytest

from tests.conformance.subjects import CASES
from tests.plugins.report import reason_of

NOT_RUN = "not run: "


class ConformanceTable:
    """Gathers what the processes of a run report."""

    def __init__(self) -> None:
        self.cells: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = dict(report.user_properties).get("conformance")
        if not isinstance(told, tuple | list) or (report.when != "call" and not report.skipped and not report.failed):
            return
        runtime, case, absent = (str(part) for part in told)
        if report.skipped or absent:
            reason = absent or reason_of(report)
            self.cells.setdefault(runtime, {})[case] = f"{NOT_RUN}{reason}"
        else:
            self.cells.setdefault(runtime, {})[case] = "FAILED" if report.failed else "ran"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.cells:
            return
        terminalreporter.section("conformance of runtimes")
        reasons: list[str] = []
        terminalreporter.write_line(" " * 20 + "".join(f"{case:<{len(case) + 2}}" for case in CASES))
        for runtime, cells in self.cells.items():
            line = f"{runtime:<20}"
            for case in CASES:
                what = cells.get(case, "")
                if what.startswith(NOT_RUN):
                    reasons += [what] if what not in reasons else []
                    what = f"({reasons.index(what) + 1})"
                line += f"{what:<{len(case) + 2}}"
            terminalreporter.write_line(line)
        for number, reason in enumerate(reasons, start=1):
            terminalreporter.write_line(f"({number}) {reason}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ConformanceTable(), "conformance-table")
