"""Whole installations in virtual time: whatever befalls them, no promise is broken, and all come to rest."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from time import process_time
from types import ModuleType

import pytest

from tests.simulation.whole.plan import Plan, make_plan
from tests.simulation.whole.planted import HIDING, MISTAKES, Mistake
from tests.simulation.whole.run import live
from tests.simulation.whole.shrink import shrink, tell
from tests.simulation.whole.stand_ins.patching import STAND_INS, replacing, stand_ins
from tests.simulation.whole.traces import TRACES

Record = Callable[[str, object], None]

SEEDS = int(os.environ.get("ATTUNE_SIMULATION_SEEDS", "1000"))
FIRST_SEED = int(os.environ.get("ATTUNE_SIMULATION_FIRST_SEED", "0"))
# As they are before anything stands in for them.
ORIGINALS = {(module, name): getattr(module, name) for module, names in STAND_INS.items() for name in names}
# The seeds are shared out in parts of a few seconds, so that no core is left with much when the others are done.
PARTS = 20
# Each mistake is noticed within so many seeds that aim at it.
SEEDS_PER_MISTAKE = 200


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with stand_ins():
        yield


def fails(plan: Plan) -> bool:
    return bool(live(plan).violation)


@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_broken_and_everything_ends(part: int, record_property: Record) -> None:
    counts = dict.fromkeys(("seeds", "executions", "attempts", "steps", "violations", "seconds", "cpu_seconds"), 0.0)
    began = process_time()
    broken: Plan | None = None
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, PARTS):
        outcome = live(make_plan(seed))
        counts["seeds"] += 1
        for name in ("executions", "attempts", "steps", "seconds"):
            counts[name] += asdict(outcome)[name]
        if outcome.violation:
            counts["violations"] += 1
            broken = make_plan(seed)
            break
    counts["cpu_seconds"] = process_time() - began
    record_property("simulated", counts)
    if broken is not None:
        plan = shrink(broken, fails)
        pytest.fail(tell(plan, live(plan, tracing=True)), pytrace=False)


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_that_broke_an_earlier_draft_is_harmless(name: str) -> None:
    assert TRACES[name].play().end() == ""


@pytest.mark.parametrize("name", TRACES)
def test_without_its_rule_the_trace_breaks_something(name: str, record_property: Record) -> None:
    trace = TRACES[name]
    with replacing(list(trace.without.changes)):
        assert trace.play().end() == trace.seen
    record_property("traced", (name, trace.seen))


def search(mistake: Mistake, *, seeds: int) -> tuple[int, str] | None:
    with replacing(list(mistake.changes)):
        for seed in range(seeds):
            outcome = live(make_plan(seed, mistake.aim))
            if outcome.violation:
                return seed, outcome.violation
    return None


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_noticed(name: str, record_property: Record) -> None:
    noticed = search(MISTAKES[name], seeds=SEEDS_PER_MISTAKE)

    assert noticed is not None
    record_property("planted", (name, *noticed))


@pytest.mark.parametrize("name", HIDING)
def test_mistakes_that_hide_each_other_are_harmless_alone(name: str) -> None:
    for alone in HIDING[name]:
        assert search(replace(alone, aim=MISTAKES[name].aim), seeds=10) is None


def test_a_seed_is_always_the_same_run() -> None:
    code = (
        "from tests.simulation.whole.stand_ins.patching import stand_ins\n"
        "from tests.simulation.whole.plan import make_plan\n"
        "from tests.simulation.whole.run import live\n"
        "with stand_ins():\n"
        "    print(*(live(make_plan(seed)).digest for seed in range(6)))\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashing, "PYTHONPATH": "."},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for hashing in ("1", "2")
    ]

    assert told[0] == told[1] == [live(make_plan(seed)).digest for seed in range(6)]
    assert len(set(told[0])) == 6


def test_a_failing_seed_is_made_small_and_told() -> None:
    with replacing(list(MISTAKES["no limit check"].changes)):
        noticed = search(MISTAKES["no limit check"], seeds=SEEDS_PER_MISTAKE)
        assert noticed is not None
        plan = make_plan(noticed[0])
        small = shrink(plan, fails)
        story = tell(small, live(small, tracing=True))

    assert {event.kind for event in small.events} == {"submit"}
    assert len(small.events) <= 3
    assert "line_limit" in story
    assert "spawns" in story


@pytest.mark.parametrize("module", STAND_INS, ids=lambda module: module.__name__)
def test_stand_ins_are_called_as_the_statements_they_stand_for(module: ModuleType) -> None:
    for name, stand_in in STAND_INS[module].items():
        original = inspect.signature(ORIGINALS[module, name])
        stands_in = inspect.signature(stand_in)
        assert [(each.name, each.kind) for each in stands_in.parameters.values()] == [
            (each.name, each.kind) for each in original.parameters.values()
        ], name
