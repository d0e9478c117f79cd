"""What the figures are held against: a target, a stretch beyond it, and what became of both. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.collect import Row

EMBEDDED = "attune postgres"
BROKER = "attune rabbitmq"
SHORT, LONG = 1_000, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Looks up what was measured; None where nothing was."""

    rows: Sequence[Row]
    machine: Sequence[Mapping[str, Any]]
    idle: Mapping[str, Any] | None = None

    def find(self, name: str, runtime: str = "native", system: str = EMBEDDED, **more: object) -> Row | None:
        wanted = {"name": name, "runtime": runtime, "system": system, **more}
        return next((row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())), None)

    def speed(self, name: str, runtime: str = "native", system: str = EMBEDDED, **more: object) -> float | None:
        row = self.find(name, runtime, system, **more)
        return None if row is None else float(row["per_second"])

    def slowest(self, name: str, runtime: str) -> float | None:
        row = self.find(name, runtime)
        return None if row is None else float(row["per_second_range"][0])

    def singly(self, name: str) -> float | None:
        row = self.find(name)
        return None if row is None else row.get("one_by_one_per_second")

    def start_ms(self, rate: int, rank: str) -> float | None:
        """How long requests waited at a rate, from when they were due: a rate that is not kept up shows by itself."""
        row = self.find("W4", rate=rate)
        return float(row["start_ms"][rank]) if row else None

    def of_machine(self, name: str) -> float | None:
        values = [each[name] for each in self.machine if each.get(name)]
        return statistics.median(values) if values else None

    def of_backlog(self, key: str, names: Sequence[str], backlog: int) -> float | None:
        row = self.find("W5", backlog=backlog)
        found = [row[key][name] for name in names if name in row[key]] if row else []
        return sum(found) or None

    def of_idle(self, key: str, *, without: str = "") -> float | None:
        return None if self.idle is None else sum(each for name, each in self.idle[key].items() if name != without)


def ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else round(above / below, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One line of the table."""

    text: str
    value: float | None
    target: float
    stretch: float
    # Whether more is better.
    least: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a target."""

    text: str
    value: float | None
    target: str
    stretch: str
    verdict: str


def judge(figures: Figures) -> list[Verdict]:
    """Every target against what was measured; one that was not measured says so."""
    return [_judge(target) for target in targets(figures)]


def _judge(target: Target) -> Verdict:
    value = target.value
    sign = "≥" if target.least else "≤"

    def holds(bound: float) -> bool:
        return value is not None and (value >= bound if target.least else value <= bound)

    words = "stretch" if holds(target.stretch) else "met" if holds(target.target) else "missed"
    return Verdict(
        text=target.text,
        value=value,
        target=f"{sign} {target.target:,g}",
        stretch=f"{sign} {target.stretch:,g}",
        verdict="not measured" if value is None else words,
    )


def targets(figures: Figures) -> Iterator[Target]:
    """In the order they are shown."""
    yield from _absolute(figures)
    yield from _against_peers(figures)
    yield from _against_itself(figures)
    yield from _against_machine(figures)
    yield from _of_waiting(figures)


def _absolute(figures: Figures) -> Iterator[Target]:
    for runtime in ("native", "shell"):
        for name, target, stretch in (("W1", 200, 800), ("W2", 500, 1_000)):
            yield Target(
                text=f"{name} {runtime}, per second in the slowest repetition",
                value=figures.slowest(name, runtime),
                target=target,
                stretch=stretch,
            )


def _against_peers(figures: Figures) -> Iterator[Target]:
    for name, peer, target, stretch in (
        ("W2", "celery", 1, 3),
        ("W3", "celery", 3, 6),
        ("W2", "procrastinate", 3, 6),
        ("W1", "dbos", 10, 30),
    ):
        yield Target(
            text=f"{name} native / {peer.capitalize() if peer != 'dbos' else 'DBOS, limit 5, polling 50 ms'}",
            value=ratio(figures.speed(name), figures.speed(name, system=peer)),
            target=target,
            stretch=stretch,
        )


def _against_itself(figures: Figures) -> Iterator[Target]:
    for name, target, stretch in (("W2", 4, 6), ("W3", 10, 18)):
        yield Target(
            text=f"{name} native, batched / one by one",
            value=ratio(figures.speed(name), figures.singly(name)),
            target=target,
            stretch=stretch,
        )
    for name in ("W2", "W3"):
        yield Target(
            text=f"W6 like {name}, three executors / one",
            value=ratio(figures.speed("W6", like=name, executors=3), figures.speed("W6", like=name, executors=1)),
            target=0.8,
            stretch=1.0,
        )
    for name in ("W1", "W2", "W3"):
        yield Target(
            text=f"{name} native, RabbitMQ / embedded",
            value=ratio(figures.speed(name, system=BROKER), figures.speed(name)),
            target=0.5,
            stretch=0.8,
        )


def _against_machine(figures: Figures) -> Iterator[Target]:
    yield Target(
        text="W1 shell / starting `sh -c 'echo hi'` with nothing around it",
        value=ratio(figures.speed("W1", "shell"), figures.of_machine("spawns_per_second")),
        target=0.6,
        stretch=0.85,
    )
    yield Target(
        text="W2 python / starting a cold Python with nothing around it",
        value=ratio(figures.speed("W2", "python"), figures.of_machine("pythons_per_second")),
        target=2,
        stretch=4,
    )
    yield Target(
        text="W3 native / durable commits of one client",
        value=ratio(figures.speed("W3"), figures.of_machine("commits_per_second")),
        target=1.5,
        stretch=2.5,
    )


def _of_waiting(figures: Figures) -> Iterator[Target]:
    for rank, most, stretch in (("p50", 8, 4), ("p99", 30, 15)):
        yield Target(
            text=f"W4 at 500 per second, request → running {rank}, ms",
            value=figures.start_ms(500, rank),
            target=most,
            stretch=stretch,
            least=False,
        )
    for text, key, names, target in (
        ("admission CPU", "cpu_us_per_execution", ("postgres", "executor-1"), 1.3),
        ("executor memory", "memory_mb", ("executor-1",), 1.1),
    ):
        yield Target(
            text=f"W5 {text} at {LONG:,} waiting / at {SHORT:,}",
            value=ratio(figures.of_backlog(key, names, LONG), figures.of_backlog(key, names, SHORT)),
            target=target,
            stretch=1.0,
            least=False,
        )
    yield Target(
        text="idle CPU of a platform, % of one core",
        value=figures.of_idle("cpu_percent"),
        target=2,
        stretch=0.5,
        least=False,
    )
    yield Target(
        text="memory of a platform without PostgreSQL, MB",
        value=figures.of_idle("memory_mb", without="postgres"),
        target=400,
        stretch=250,
        least=False,
    )
