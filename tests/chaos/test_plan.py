"""A seed is a plan: the same one for ever, and many of them leave no kind of fault out."""

from __future__ import annotations

from collections import Counter

import pytest

from attune.runtime.failpoints import DECLARED
from tests.chaos.kinds import NEEDS_BROKER, Kind
from tests.chaos.plan import KILL, Plan, make_plan, read_plan, write_plan
from tests.chaos.points.ways import MIGRATION, STALL, STALLED
from tests.chaos.stage import failpoints_to_arm

SEEDS = range(1, 21)


def plan_of(seed: int, transport: str = "rabbitmq") -> Plan:
    return make_plan(seed, transport, chaos_seconds=75, failpoints=failpoints_to_arm(transport))


def test_the_same_seed_is_the_same_plan() -> None:
    assert write_plan(plan_of(7)) == write_plan(plan_of(7))
    assert write_plan(plan_of(7)) != write_plan(plan_of(8))


def test_a_plan_that_was_written_down_is_read_as_it_was() -> None:
    assert write_plan(read_plan(write_plan(plan_of(7)))) == write_plan(plan_of(7))


def test_twenty_seeds_leave_no_kind_of_fault_and_no_failpoint_out() -> None:
    faults = [fault for seed in SEEDS for fault in plan_of(seed).faults]
    assert {fault.kind for fault in faults} == set(Kind)
    assert {name for seed in SEEDS for name in plan_of(seed).armed} == set(DECLARED)
    # The one in the way of the start has fired before the first fault.
    assert {fault.target for fault in faults if fault.kind is Kind.FAILPOINT} == set(DECLARED) - {MIGRATION}


def test_whatever_failpoint_is_wanted_is_armed_to_kill_in_a_few_seeds() -> None:
    wanted = set(DECLARED)
    for seed in SEEDS[:4]:
        plan = make_plan(seed, "rabbitmq", chaos_seconds=75, wanted=wanted)
        wanted -= {name for name, action in plan.armed.items() if action == KILL}
    assert wanted == set()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_is_stalled_where_only_that_leads_to_a_failpoint(seed: int) -> None:
    plan = plan_of(seed)
    if "sweep.scheduled_timeout.selected" in plan.armed:
        assert plan.armed[STALL] == STALLED


def test_a_seed_takes_some_kinds_and_leaves_others() -> None:
    kinds = [{fault.kind for fault in plan_of(seed).faults} for seed in SEEDS]
    assert all(len(each) < len(Kind) for each in kinds)
    assert len({frozenset(each) for each in kinds}) > len(SEEDS) // 2


def test_no_broker_is_harmed_where_there_is_none() -> None:
    faults = [fault for seed in SEEDS for fault in plan_of(seed, "postgres").faults]
    assert not [fault for fault in faults if fault.kind in NEEDS_BROKER or fault.target.startswith("rabbitmq")]


@pytest.mark.parametrize("seed", SEEDS)
def test_two_faults_never_meet_on_one_server(seed: int) -> None:
    ends: Counter[str] = Counter()
    for fault in plan_of(seed).faults:
        place = fault.target.partition("/")[0]
        if fault.kind is not Kind.FAILPOINT:
            assert fault.at >= ends[place]
            ends[place] = int(fault.at + fault.seconds)


def test_work_in_peace_is_the_same_work() -> None:
    plan = plan_of(7)
    assert plan.without_faults().tracks == plan.tracks
    assert (plan.without_faults().faults, plan.without_faults().failpoints) == ((), ())
