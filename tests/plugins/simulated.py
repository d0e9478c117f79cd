"""What was simulated, and which planted mistakes were noticed, told at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

# What a count is called where its own name would not say enough.
SAID = {"seconds": "virtual s", "cpu_seconds": "s of CPU"}


class SimulationTable:
    """Adds up what the processes of a run report."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.planted: list[tuple[str, int, str]] = []
        self.traced: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        for name, value in report.user_properties:
            told: Any = value
            if name == "simulated":
                self.counts.update(told)
            elif name == "planted":
                self.planted.append(tuple(told))
            elif name == "traced":
                self.traced.append(tuple(told))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        if self.counts or self.planted or self.traced:
            terminalreporter.section("what was simulated")
        if self.counts:
            write(", ".join(f"{round(count):,} {SAID.get(name, name)}" for name, count in self.counts.items()))
        for trace, seen in sorted(self.traced, key=lambda each: int(each[0].split()[0])):
            write(f"trace {trace:<48} without its rule: {seen}")
        for mistake, seed, seen in sorted(self.planted):
            write(f"planted: {mistake:<39} seed {seed:>3}  {seen}")
        if self.planted:
            write(f"planted mistakes noticed: {len(self.planted)}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SimulationTable(), "simulation-table")
