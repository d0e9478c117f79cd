"""Which worker an execution goes to."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from attune.domain.definitions import Isolation, Runner
from attune.domain.placement import (
    Candidate,
    Requirements,
    Waiting,
    can_run,
    choose_workers,
    room_of,
    take_turns,
    total_room,
)

SHELL = Requirements(runner=Runner.SHELL, labels={}, isolation=None)
NATIVE = Requirements(runner=Runner.NATIVE, labels={}, isolation=None)


def candidate(worker_id: int, *, capacity: int = 4, load: int = 0, **changes: object) -> Candidate:
    facts: dict[str, object] = {
        "worker_id": worker_id,
        "instance": f"instance-{worker_id}",
        "runtimes": frozenset({"shell", "native"}),
        "labels": {},
        "isolation": Isolation.NONE,
        "capacity": capacity,
        "load": load,
    }
    return Candidate(**(facts | changes))  # type: ignore[arg-type]  # the facts above are complete


def waiting(
    count: int, *, action_id: int = 1, first: int = 1, priority: int = 0, avoid: int | None = None
) -> list[Waiting]:
    return [
        Waiting(execution_id=first + number, attempt=0, action_id=action_id, priority=priority, avoid=avoid)
        for number in range(count)
    ]


def half() -> float:
    return 0.5


def test_the_least_loaded_worker_is_chosen() -> None:
    chosen = choose_workers(waiting(1), [candidate(1, load=3), candidate(2, load=1)], SHELL, draw=half)

    assert chosen[1].worker_id == 2


def test_load_is_counted_against_capacity() -> None:
    chosen = choose_workers(
        waiting(1), [candidate(1, load=3, capacity=4), candidate(2, load=5, capacity=20)], SHELL, draw=half
    )

    assert chosen[1].worker_id == 2


def test_a_worker_without_the_runtime_the_label_or_the_isolation_is_no_candidate() -> None:
    asked = Requirements(runner=Runner.SHELL, labels={"zone": "a"}, isolation=Isolation.USER)
    fits = candidate(1, labels={"zone": "a", "disk": "ssd"}, isolation=Isolation.NAMESPACE)

    assert can_run(fits, asked)
    assert not can_run(candidate(1, labels={"zone": "b"}, isolation=Isolation.NAMESPACE), asked)
    assert not can_run(candidate(1, labels={"zone": "a"}, isolation=Isolation.NONE), asked)
    assert not can_run(
        candidate(1, labels={"zone": "a"}, isolation=Isolation.USER, runtimes=frozenset({"native"})), asked
    )


def test_a_worker_that_makes_containers_gives_them_every_isolation() -> None:
    worker = candidate(1, isolation=Isolation.NONE, runtimes=frozenset({"shell", "container"}))
    boxed = Requirements(runner=Runner.CONTAINER, labels={}, isolation=Isolation.CONTAINER)

    assert can_run(worker, boxed)
    assert not can_run(worker, Requirements(runner=Runner.SHELL, labels={}, isolation=Isolation.CONTAINER))


def test_the_worker_of_the_last_attempt_is_avoided_if_another_has_room() -> None:
    both = [candidate(1, load=0), candidate(2, load=3)]

    assert choose_workers(waiting(1, avoid=1), both, SHELL, draw=half)[1].worker_id == 2
    assert choose_workers(waiting(1, avoid=1), both[:1], SHELL, draw=half)[1].worker_id == 1


def test_native_work_may_wait_on_a_worker_but_only_a_quarter_of_its_capacity() -> None:
    full = candidate(1, capacity=8, load=8)

    assert room_of(full, NATIVE) == 2
    assert room_of(full, SHELL) == 0


@given(
    loads=st.lists(st.tuples(st.integers(1, 10), st.integers(0, 12)), max_size=6),
    count=st.integers(0, 60),
    draws=st.randoms(use_true_random=False),
)
def test_nobody_is_given_more_than_it_has_room_for_and_no_room_is_left_unused(
    loads: list[tuple[int, int]], count: int, draws: object
) -> None:
    candidates = [candidate(number, capacity=capacity, load=load) for number, (capacity, load) in enumerate(loads)]

    chosen = choose_workers(waiting(count), candidates, SHELL, draw=draws.random)  # type: ignore[attr-defined]  # hypothesis hides the type

    given_to = Counter(each.worker_id for each in chosen.values())
    assert all(given_to[each.worker_id] <= room_of(each, SHELL) for each in candidates)
    assert len(chosen) == min(count, total_room(candidates, SHELL))
    assert set(chosen) == {item.execution_id for item in waiting(len(chosen))}


def test_actions_take_turns_within_a_priority() -> None:
    order = take_turns(
        [*waiting(3, action_id=1, first=1), *waiting(2, action_id=2, first=10), *waiting(1, first=20, priority=5)]
    )

    assert [item.execution_id for item in order] == [20, 1, 10, 2, 11, 3]


def test_equal_requirements_share_a_pool_and_different_ones_do_not() -> None:
    same = Requirements(runner=Runner.SHELL, labels={"a": "1", "b": "2"}, isolation=None)
    reordered = Requirements(runner=Runner.SHELL, labels={"b": "2", "a": "1"}, isolation=None)
    other = Requirements(runner=Runner.SHELL, labels={"a": "1"}, isolation=None)

    assert same.pool == reordered.pool
    assert same.pool != other.pool
    assert -(2**63) <= same.pool < 2**63


def test_an_avoided_worker_gets_only_what_finds_no_room_elsewhere() -> None:
    workers = [candidate(1, capacity=2, avoided=True), candidate(2, capacity=2, load=1)]
    chosen = choose_workers(waiting(3), workers, SHELL, draw=half)
    assert [chosen[number].worker_id for number in (1, 2, 3)] == [2, 1, 1]
