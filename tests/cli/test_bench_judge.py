"""The witnesses of `attune bench` notice what they are there for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from attune.cli.bench.judge import Evidence, Verdict, judge
from attune.client.models import Admission, Execution, Status

REF = "bench.w1_native_0"
START = datetime(2026, 1, 1, tzinfo=UTC)
CLEAN = Verdict(inversions=0, over_limit=0, lost=0, duplicated=0)


def execution(number: int, *, seconds: float = 1.0, status: Status = Status.SUCCEEDED, begin: float = 0) -> Execution:
    """Number n has the id n + 100: the witness must not mistake one for the other."""
    started = START + timedelta(seconds=begin)
    return Execution(
        id=number + 100,
        action_ref=REF,
        status=status,
        parameters={"n": number},
        created=START,
        started_at=started,
        ended_at=started + timedelta(seconds=seconds) if status.ended else None,
    )


def admit(number: int, *, n: int, active: int = 1, limit: int = 2) -> Admission:
    return Admission(n=n, op="admit", execution_id=number + 100, active=active, limit_in_force=limit)


def run(count: int = 4) -> Evidence:
    """A run where all went well: one after the other, in order."""
    return Evidence(
        accepted=[number + 100 for number in range(count)],
        executions=[execution(number, begin=number) for number in range(count)],
        admissions={REF: [admit(number, n=number) for number in range(count)]},
        limit=2,
    )


def with_log(log: Sequence[Admission]) -> Evidence:
    return replace(run(), admissions={REF: log})


def test_a_run_in_order_and_within_its_limit_is_clean() -> None:
    assert judge(run()) == CLEAN
    assert judge(run()).clean


def test_an_admission_out_of_order_is_an_inversion() -> None:
    order = [0, 2, 1, 3]
    verdict = judge(with_log([admit(number, n=place) for place, number in enumerate(order)]))

    assert verdict == replace(CLEAN, inversions=1)
    assert not verdict.clean


def test_the_order_is_that_of_the_requests_not_of_the_ids() -> None:
    swapped = [execution(0), execution(1, begin=1)]
    swapped = [
        Execution(id=other.id, **{name: getattr(each, name) for name in each.__struct_fields__ if name != "id"})
        for each, other in zip(swapped, reversed(swapped), strict=True)
    ]
    evidence = replace(run(2), executions=swapped)

    assert judge(evidence).inversions == 1


def test_what_happened_to_other_lines_is_no_inversion() -> None:
    logs = {"bench.a": [admit(1, n=1), admit(3, n=2)], "bench.b": [admit(0, n=1), admit(2, n=2)]}

    assert judge(replace(run(), admissions=logs)) == CLEAN


def test_more_slots_in_the_log_than_the_limit_are_noticed() -> None:
    log = [admit(0, n=1, active=1), admit(1, n=2, active=2), admit(2, n=3, active=3), admit(3, n=4, active=1)]

    assert judge(with_log(log)) == replace(CLEAN, over_limit=1)


def test_a_log_that_claims_a_higher_limit_than_was_asked_for_is_noticed() -> None:
    log = [admit(number, n=number, active=3, limit=5) for number in range(4)]

    assert judge(with_log(log)).over_limit == 4


def test_more_running_at_once_than_the_limit_are_noticed_whatever_the_log_says() -> None:
    together = [execution(number, begin=number / 10) for number in range(4)]

    assert judge(replace(run(), executions=together)) == replace(CLEAN, over_limit=2)


def test_a_slot_given_on_at_the_instant_it_is_freed_is_within_the_limit() -> None:
    chain = [execution(number, begin=number // 2) for number in range(4)]

    assert judge(replace(run(), executions=chain)) == CLEAN


def test_accepted_and_never_seen_again_is_lost() -> None:
    assert judge(replace(run(), executions=[execution(number, begin=number) for number in range(3)])).lost == 1


def test_accepted_and_not_carried_out_is_lost() -> None:
    executions = [execution(0), execution(1, begin=1), execution(2, begin=2), execution(3, status=Status.RUNNING)]

    assert judge(replace(run(), executions=executions)) == replace(CLEAN, lost=1)
    executions[3] = execution(3, begin=3, status=Status.FAILED)
    assert judge(replace(run(), executions=executions)) == replace(CLEAN, lost=1)


def test_an_execution_that_started_twice_is_duplicated() -> None:
    assert judge(replace(run(), doubled_starts=[101])) == replace(CLEAN, duplicated=1)


def test_an_execution_that_was_admitted_twice_is_duplicated_once() -> None:
    log = [admit(number, n=place) for place, number in enumerate([0, 1, 1, 2, 3])]

    assert judge(replace(with_log(log), doubled_starts=[101])) == replace(CLEAN, duplicated=1)


def test_a_request_that_became_two_executions_is_duplicated() -> None:
    twin = Execution(id=999, action_ref=REF, status=Status.SUCCEEDED, parameters={"n": 3})

    assert judge(replace(run(), executions=[*run().executions, twin])) == replace(CLEAN, duplicated=1)


def test_without_a_limit_there_is_no_line_to_judge() -> None:
    together = [execution(number) for number in range(4)]

    assert judge(replace(run(), executions=together, admissions={}, limit=None)) == CLEAN
