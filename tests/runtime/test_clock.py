"""What is promised about pauses, ids and time."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from attune.runtime.clock import draw, jittered_backoff, monotonic, new_uuid, random_bytes, utc_now


@given(failures=st.integers(0, 10_000), drawn=st.floats(0, 1, exclude_max=True))
def test_a_pause_doubles_within_its_ceiling_and_never_vanishes(failures: int, drawn: float) -> None:
    pause = jittered_backoff(failures, first_seconds=0.5, ceiling_seconds=30, drawn=drawn)

    full = 30 if failures > 6 else 0.5 * 2 ** max(failures - 1, 0)
    assert full / 2 <= pause <= full


def test_times_carry_their_zone_and_differences_never_run_backwards() -> None:
    assert utc_now().utcoffset() == timedelta(0)
    earlier = monotonic()
    assert monotonic() >= earlier


def test_ids_and_draws_differ() -> None:
    assert len({new_uuid() for _ in range(100)}) == 100
    assert len({random_bytes(16) for _ in range(100)}) == 100
    assert all(0 <= draw() < 1 for _ in range(100))
