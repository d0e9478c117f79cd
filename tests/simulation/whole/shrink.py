"""Makes a failing plan small: what can be left out without losing the failure is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.whole.broker import Weather
from tests.simulation.whole.plan import Event, Plan
from tests.simulation.whole.run import Outcome

# So many runs at most; then what is left is small enough.
RUNS_MAX = 150


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """A plan that fails as well, with fewer events and less weather."""
    runs = [RUNS_MAX]

    def still(candidate: Plan) -> bool:
        runs[0] -= 1
        return runs[0] >= 0 and fails(candidate)

    for calmer in (
        {"weather": Weather()},
        {"lost_answers": 0.0},
        {"interleaving": 0.0},
        {"executors": 1},
        {"external": False},
    ):
        candidate = replace(plan, **calmer)
        if candidate != plan and still(candidate):
            plan = candidate
    return replace(plan, events=tuple(_fewer(plan.events, lambda events: still(replace(plan, events=tuple(events))))))


def _fewer(events: Sequence[Event], fails: Callable[[Sequence[Event]], bool]) -> list[Event]:
    """Leave out ever smaller parts, as long as the failure stays."""
    kept, part = list(events), max(1, len(events) // 2)
    while True:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + part :]
            if fails(fewer):
                kept = fewer
            else:
                start += part
        if part == 1:
            return kept
        part //= 2


def tell(plan: Plan, outcome: Outcome) -> str:
    """The story of a failure, for a person."""
    fleet = ", ".join(f"{worker.name} with {worker.capacity}" for worker in plan.workers)
    weather = f"{plan.weather}, answers lost {plan.lost_answers:g}, interleaving {plan.interleaving:g}"
    kind = "a broker" if plan.external else "the outbox alone"
    return "\n".join(
        [
            f"seed {plan.seed} → {outcome.text}",
            f"{plan.executors} executors, {fleet}, {kind}, {weather}",
            *map(str, plan.events),
            "what happened:",
            *outcome.trace,
        ]
    )
