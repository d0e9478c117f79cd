"""The judges of a chaos run: each is shown a run that kept its promises, and the one fault it exists for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tests.chaos.judge import Ended, Record, judge
from tests.chaos.plan import Track, Work
from tests.chaos.workload import Told
from tests.witness.ledger import END, START, Line
from tests.witness.line_log import LogRow

ZERO = datetime(2030, 1, 1, tzinfo=UTC)
ONCE = Work(ref="chaos.once", idempotent=False)
AGAIN = Work(ref="chaos.again", retry_seconds=0.5)


def row(number: int, **changes: object) -> Ended:
    values = {
        "id": number,
        "action_ref": "chaos.once",
        "status": "succeeded",
        "code": None,
        "attempt": 1,
        "tries": 1,
        "created": ZERO,
        "ended_at": ZERO + timedelta(seconds=1),
    }
    return Ended(**(values | changes))  # type: ignore[arg-type]  # callers change what they name


def line(what: str, number: int, attempt: int = 1) -> Line:
    return Line(what=what, execution=number, attempt=attempt, pid=1)


def log(*steps: tuple[str, int]) -> list[LogRow]:
    return [
        LogRow(line_id=1, n=n, op=op, execution_id=who, priority=0, limit_in_force=1, at=ZERO)
        for n, (op, who) in enumerate(steps, 1)
    ]


SERVED = (("enq", 1), ("enq", 2), ("admit", 1), ("release", 1), ("admit", 2), ("release", 2))


def a_run(work: Work = ONCE, **changes: object) -> Record:
    """Two executions in a line with the limit 1, one after the other, as promised."""
    told = Told(
        track=Track(name="once", works=[work], pace_seconds=1, limit=1), accepted=[1, 2], work_of={1: work, 2: work}
    )
    good = Record(
        told=[told],
        executions=[row(1), row(2)],
        ledger=[line(START, 1), line(END, 1), line(START, 2), line(END, 2)],
        admissions={1: log(*SERVED)},
    )
    return replace(good, **changes)  # type: ignore[arg-type]  # callers change what they name


def test_a_run_that_kept_its_promises_is_found_without_fault() -> None:
    assert judge(a_run()).broken == []


def test_who_was_accepted_and_is_gone_is_lost() -> None:
    assert judge(a_run(executions=[row(1)])).lost == ["2 was accepted and is not there"]


def test_who_exists_without_anybody_having_been_told_is_found() -> None:
    assert judge(a_run(executions=[row(1), row(2), row(3)])).lost == ["3 exists and nobody was told"]


def test_who_never_left_its_line_is_lost() -> None:
    assert judge(a_run(admissions={1: log(*SERVED[:-1])})).lost == [
        "2 joined 1 times, came back 0 times and left 0 times"
    ]


def test_who_came_back_for_a_delayed_retry_leaves_twice() -> None:
    returned = log(*SERVED[:3], ("release", 1), ("rejoin", 1), ("admit", 1), ("release", 1), *SERVED[4:])
    assert judge(a_run(AGAIN, admissions={1: returned})).lost == []


def test_a_success_that_never_ran_to_its_end_is_lost_work() -> None:
    silent = a_run(ledger=[line(START, 1), line(END, 1), line(START, 2)])
    assert judge(silent).lost == ["2 succeeded in attempt 1 without having run to its end"]
    elsewhere = a_run(executions=[row(1), row(2, attempt=2)])
    assert judge(elsewhere).lost == ["2 succeeded in attempt 2 without having run to its end"]


def test_what_does_not_end_in_time_is_lost() -> None:
    assert judge(a_run(waiting=["2 is running still"])).lost == ["2 is running still"]


def test_a_second_start_of_one_attempt_is_a_duplicate() -> None:
    doubled = a_run(ledger=[line(START, 1), *a_run().ledger])
    assert judge(doubled).duplicated == ["1, attempt 1, started 2 times"]


def test_one_execution_for_two_requests_is_a_duplicate() -> None:
    confused = a_run()
    confused.told[0].accepted.append(1)
    assert judge(confused).duplicated == ["1 was the answer to 2 requests"]


def test_work_that_must_not_be_repeated_is_started_once() -> None:
    again = [*a_run().ledger, line(START, 2, attempt=2)]
    assert judge(a_run(ledger=again)).duplicated == ["2 must not be repeated and was started in attempts [1, 2]"]
    assert judge(a_run(AGAIN, ledger=again)).duplicated == []


def test_who_overtakes_is_out_of_order() -> None:
    overtaken = log(("enq", 1), ("enq", 2), ("admit", 2), ("release", 2), ("admit", 1), ("release", 1))
    assert judge(a_run(admissions={1: overtaken})).order == ["line 1: 2 was admitted before [1]"]


def test_one_slot_for_two_breaks_the_limit_in_the_log_and_in_the_ledger() -> None:
    both = log(("enq", 1), ("enq", 2), ("admit", 1), ("admit", 2), ("release", 1), ("release", 2))
    assert judge(a_run(admissions={1: both})).limit == ["line 1, n 4: 2 held a slot of 1"]
    at_once = [line(START, 1), line(START, 2), line(END, 1), line(END, 2)]
    assert judge(a_run(ledger=at_once)).limit == ["2 of once ran at once, 1 may"]


def test_what_a_lost_worker_left_behind_held_no_slot() -> None:
    ledger = [line(START, 1), line(START, 2), line(END, 1), line(END, 2), line(START, 1, 2), line(END, 1, 2)]
    assert judge(a_run(AGAIN, executions=[row(1, attempt=2), row(2)], ledger=ledger)).limit == []


def test_what_is_held_when_nothing_runs_has_leaked() -> None:
    assert judge(a_run(leftovers={"assignment": 1, "unplaced": 0})).leaked == ["1 left in assignment"]


def test_an_end_that_nobody_asked_for_and_no_fault_explains_is_wrong() -> None:
    cancelled = a_run(executions=[row(1), row(2, status="cancelled", code="cancelled")])
    assert len(judge(cancelled).ends) == 1
    cancelled.told[0].cancelled.add(2)
    assert judge(cancelled).ends == []
    lost = [row(1), row(2, status="failed", code="worker_lost")]
    assert judge(a_run(executions=lost)).ends == []
    assert len(judge(a_run(AGAIN, executions=lost)).ends) == 1
    assert len(judge(a_run(executions=lost, in_peace=True)).ends) == 1


def test_what_takes_longer_than_it_may_ends_so_and_nothing_else_does() -> None:
    brief = Work(ref="chaos.brief", seconds=30, timeout_seconds=1)
    late = [row(1, status="timeout", code="timeout"), row(2, status="timeout", code="timeout")]
    assert judge(a_run(brief, executions=late)).ends == []
    assert len(judge(a_run(executions=late)).ends) == 2
    assert len(judge(a_run(brief)).ends) == 2


def test_who_is_given_up_in_line_has_waited_so_long_and_never_began() -> None:
    given_up = [row(1), row(2, status="failed", code="queue_timeout", ended_at=ZERO + timedelta(seconds=3))]
    waited = a_run(executions=given_up, ledger=[line(START, 1), line(END, 1)])
    assert len(judge(waited).ends) == 1
    assert judge(with_patience(waited, seconds=2)).ends == []
    assert len(judge(with_patience(waited, seconds=4)).ends) == 1
    begun = a_run(executions=given_up, ledger=[line(START, 1), line(END, 1), line(START, 2)])
    assert len(judge(with_patience(begun, seconds=2)).ends) == 1


def test_who_has_a_time_of_its_own_may_end_with_it_unless_it_has_begun() -> None:
    hasty = Work(ref="chaos.hasty", ttl_seconds=4)
    over = [row(1), row(2, status="failed", code="worker_queue_ttl_expired", attempt=2)]
    assert judge(a_run(hasty, executions=over)).ends == []
    assert len(judge(a_run(hasty, executions=over, in_peace=True)).ends) == 1
    assert len(judge(a_run(executions=over)).ends) == 1
    begun = [*a_run().ledger, line(START, 2, attempt=2)]
    assert len(judge(a_run(hasty, executions=over, ledger=begun)).ends) == 1


def with_patience(record: Record, *, seconds: int) -> Record:
    told = record.told[0]
    return replace(record, told=[replace(told, track=replace(told.track, queue_timeout_seconds=seconds))])


def test_a_limit_that_moves_by_itself_moves_between_its_bounds() -> None:
    moved = a_run()
    told = moved.told[0]
    assert judge(moved).limit == []
    wide = replace(moved, told=[replace(told, track=replace(told.track, limit=3))])
    assert len(judge(wide).limit) == 2
    adaptive = replace(moved, told=[replace(told, track=replace(told.track, limit=3, adaptive=True))])
    assert judge(adaptive).limit == []


def test_two_answers_under_one_key_and_a_broken_invariant_are_told() -> None:
    confused = a_run(check="line_limit", deadlocks=["deadlock detected"])
    confused.told[0].contradictions.append("once-1: 3 answered, 2 asked for")
    assert judge(confused).other == ["once-1: 3 answered, 2 asked for", "attune check: line_limit", "deadlock detected"]


def test_in_peace_no_sweep_mends_anything_and_nothing_is_tried_twice() -> None:
    assert judge(a_run(in_peace=True)).broken == []
    assert len(judge(a_run(in_peace=True, mended={"lost workers": 1})).other) == 1
    assert len(judge(a_run(in_peace=True, executions=[row(1), row(2, tries=2)])).other) == 1
    assert judge(a_run(AGAIN, in_peace=True, executions=[row(1, tries=2), row(2, tries=2)])).other == []
