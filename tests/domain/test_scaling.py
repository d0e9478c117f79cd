"""How many workers a pool wants."""

from __future__ import annotations

import pytest

from attune.domain.availability.scaling import Fleet, PoolDemand, plan_fleet, plan_pool

FLEET = Fleet(workers=2, capacity=20)


def demand(**changes: object) -> PoolDemand:
    values: dict[str, object] = {
        "pool": "1",
        "runner": "shell",
        "labels": {},
        "isolation": None,
        "running": 0,
        "backlog": 0,
        "completions_per_second": 0.0,
        "dead_letters_per_minute": 0,
        "workers": 2,
        "capacity": 20,
    }
    return PoolDemand(**(values | changes))  # type: ignore[arg-type]  # each has its field's type


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (demand(), 0),
        (demand(running=1), 1),
        (demand(running=20), 2),
        (demand(running=20, backlog=15), 4),
        # Gone within half a minute at this speed: nobody has to come for it.
        (demand(running=20, backlog=15, completions_per_second=1.0), 2),
        # Three minutes: six times as many workers would do it in time, but there is only work for four.
        (demand(running=20, backlog=20, completions_per_second=1 / 9), 4),
        (demand(running=20, backlog=9000, completions_per_second=100.0), 6),
        # Nobody can run it: as many as its slots need, if they were like the others.
        (demand(backlog=25, workers=0, capacity=0), 3),
    ],
)
def test_a_pool_wants_what_it_needs_and_no_more(given: PoolDemand, wanted: int) -> None:
    assert plan_pool(given, FLEET).wanted == wanted


def test_pools_share_workers() -> None:
    plans = [plan_pool(demand(running=4), FLEET), plan_pool(demand(pool="2", running=5), FLEET)]
    assert plan_fleet(plans, FLEET) == 1


def test_a_pool_that_nobody_here_can_run_asks_for_no_more_of_the_same() -> None:
    plans = [plan_pool(demand(backlog=100, workers=0, capacity=0), FLEET)]
    assert plan_fleet(plans, FLEET) == 0


def test_without_any_worker_the_first_is_wanted() -> None:
    nobody = Fleet(workers=0, capacity=0)
    assert plan_fleet([plan_pool(demand(backlog=3, workers=0, capacity=0), nobody)], nobody) == 3
    assert plan_fleet([], nobody) == 0
