"""Nobody is given up for silent before everybody had the time to be heard."""

from __future__ import annotations

from attune.executor.contact import Contact
from attune.executor.sweeps import SweepSettings, sweeps
from tests.witness.arrange import always_half


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def in_touch(clock: Clock, contact: Contact, *, seconds: int) -> None:
    """An answer every second."""
    for _ in range(seconds):
        clock.now += 1
        contact.touch()


def a_contact() -> tuple[Clock, Contact]:
    clock = Clock()
    return clock, Contact(break_seconds=2, patience_seconds=10, clock=clock)


def test_an_executor_that_has_just_started_waits_for_workers_to_be_heard() -> None:
    clock, contact = a_contact()
    assert not contact.is_old
    in_touch(clock, contact, seconds=5)
    assert not contact.is_old
    in_touch(clock, contact, seconds=6)
    assert contact.is_old


def test_after_an_outage_workers_have_the_time_to_be_heard_again() -> None:
    clock, contact = a_contact()
    in_touch(clock, contact, seconds=20)
    clock.now += 60
    # The first to come back knows that it was away, before and after it got its first answer.
    assert not contact.is_old
    contact.touch()
    assert not contact.is_old
    in_touch(clock, contact, seconds=10)
    assert contact.is_old


def test_what_asks_for_no_patience_is_never_held_up() -> None:
    assert Contact(clock=Clock()).is_old


def test_every_sweep_that_gives_up_work_nobody_could_do_is_patient() -> None:
    settings = SweepSettings(
        heartbeat_interval=10,
        scheduled_timeout=300,
        timeout_check_interval=60,
        placements_max=5,
        history_days=7,
        dead_letter_seconds=60,
        pinned_ttl_seconds=None,
        idempotency_hours=24,
        queue_timeout_seconds=3600,
        health_check_interval=30,
    )
    table = sweeps(settings, draw=always_half)
    assert {sweep.name for sweep in table if sweep.patient} == {"scheduled timeout", "no worker"}
    assert len({id(sweep.contact) for sweep in table}) == 1
