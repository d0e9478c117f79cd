"""An alert fires once for each episode, after it held long enough, and is resolved once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from attune.domain.alerts.catalogue import ALERTS
from attune.domain.alerts.episodes import GAP_SECONDS, SUBJECTS_MAX, Alert, Episode, Finding, Severity, Turn, evaluate
from attune.domain.alerts.readings import LineReading, PlatformReading, Readings, Sample, remember

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FOR_SECONDS = 20.0
CLEAR_SECONDS = 30.0
CALM = Readings(
    platform=PlatformReading(
        active_workers=1,
        cordoned_workers=0,
        dead_letters_open=0,
        dead_letters_unhandled=0,
        dead_letters_last_minute=0,
        stale_executions=0,
        outbox_oldest_seconds=0.0,
        outbox_oldest_topic=None,
        default_partitions=[],
    )
)


def readings(*, stale: int) -> Readings:
    return replace(CALM, platform=replace(CALM.platform, stale_executions=stale))


def subjects_of(found: Readings) -> list[Finding]:
    """As many subjects as there are stale executions."""
    return [Finding(subject=f"line:{n}", facts={"n": n}) for n in range(found.platform.stale_executions)]


WATCHED = Alert(
    name="watched",
    severity=Severity.WARNING,
    condition="it holds",
    message="line {n}",
    runbook="",
    find=subjects_of,
    for_seconds=FOR_SECONDS,
    clear_seconds=CLEAR_SECONDS,
)


def after(turn: Turn) -> list[Episode]:
    return [*turn.pending, *turn.fired, *turn.still]


def look(standing: Sequence[Episode], *, stale: int, at: float, alert: Alert = WATCHED) -> Turn:
    return evaluate([alert], readings(stale=stale), standing, now=NOON + timedelta(seconds=at))


@given(st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=60))
def test_every_episode_fires_once_and_is_resolved_once(looks: list[tuple[int, bool]]) -> None:
    standing: list[Episode] = []
    at, firing, true_since, seen = 0.0, False, None, 0.0
    for pause, holds in looks:
        at += pause
        turn = look(standing, stale=int(holds), at=at)
        if holds and (true_since is None or (not firing and at - seen > GAP_SECONDS)):
            true_since = at
        fires = holds and not firing and true_since is not None and at - true_since >= FOR_SECONDS
        ends = firing and not holds and at - seen >= CLEAR_SECONDS
        assert (len(turn.fired), len(turn.resolved)) == (int(fires), int(ends))
        firing = (firing or fires) and not ends
        if holds:
            seen = at
        elif not firing:
            true_since = None
        standing = after(turn)
        assert len(standing) == int(firing or holds)


@given(st.lists(st.floats(0.1, FOR_SECONDS - 0.1), max_size=30))
def test_what_never_holds_long_enough_never_fires(lengths: list[float]) -> None:
    at, standing = 0.0, list[Episode]()
    for length in lengths:
        for pause, stale in ((1.0, 1), (length, 1), (1.0, 0)):
            at += pause
            turn = look(standing, stale=stale, at=at)
            standing = after(turn)
            assert not turn.fired
        assert standing == []


def test_without_a_wait_it_fires_at_once_and_only_once() -> None:
    at_once = replace(WATCHED, for_seconds=0.0)
    first = look([], stale=1, at=0, alert=at_once)
    assert [each.message for each in first.fired] == ["line 0"]
    second = look(after(first), stale=1, at=10, alert=at_once)
    assert (second.fired, len(second.still)) == ([], 1)


def test_each_subject_has_an_episode_of_its_own() -> None:
    first = look([], stale=2, at=0)
    second = look(after(first), stale=2, at=FOR_SECONDS)
    third = look(after(second), stale=1, at=FOR_SECONDS + CLEAR_SECONDS)
    assert [each.subject for each in second.fired] == ["line:0", "line:1"]
    assert [each.subject for each in third.resolved] == ["line:1"]
    assert [each.subject for each in third.still] == ["line:0"]


def test_no_more_than_a_bounded_number_of_things_is_told_of_and_those_told_of_stay() -> None:
    first = look([], stale=SUBJECTS_MAX + 50, at=0)
    assert len(first.pending) == SUBJECTS_MAX
    second = look(after(first), stale=SUBJECTS_MAX + 50, at=FOR_SECONDS)
    assert [each.subject for each in second.fired] == [each.subject for each in first.pending]
    assert second.pending == []


def test_what_cannot_be_told_begins_nothing_and_ends_nothing() -> None:
    standing = after(look(after(look([], stale=1, at=0)), stale=1, at=FOR_SECONDS))
    blind = replace(WATCHED, find=lambda _: None)
    turn = look(standing, stale=0, at=10_000, alert=blind)
    assert (turn.still, turn.resolved) == (standing, [])
    assert look([], stale=1, at=0, alert=blind) == Turn(pending=[], fired=[], still=[], resolved=[], dropped=[])


def test_an_alert_that_is_watched_for_no_more_is_over() -> None:
    standing = after(look(after(look([], stale=1, at=0)), stale=1, at=FOR_SECONDS))
    turn = evaluate([], CALM, standing, now=NOON)
    assert [each.name for each in turn.resolved] == ["watched"]


def test_a_calm_platform_has_no_alert() -> None:
    assert evaluate(ALERTS, CALM, [], now=NOON) == Turn(pending=[], fired=[], still=[], resolved=[], dropped=[])


def test_names_are_unique() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)


def line(line_id: int, waiting: int) -> LineReading:
    return LineReading(
        line_id=line_id,
        scope="global",
        group="{}",
        waiting=waiting,
        active=0,
        length_max=10_000,
        total_completed=0,
        on_purpose=False,
    )


def test_a_look_that_could_not_see_every_line_says_how_long_the_others_can_be() -> None:
    seen = [line(1, 900), line(2, 300), line(3, 0)]
    assert remember(seen, timeouts=0, actions={}, lines_max=2).others_at_most == 300
    assert remember(seen, timeouts=0, actions={}, lines_max=500) == Sample(
        lines=remember(seen[:2], timeouts=0, actions={}, lines_max=500).lines
    )
