"""When a line is healthy, and when somebody should look at it."""

from __future__ import annotations

import pytest

from attune.domain.line_health import Health, LineFacts, judge


def facts(
    fullness: float = 0.0, oldest_seconds: float = 0.0, stuck_lines: int = 0, *, paused: bool = False
) -> LineFacts:
    return LineFacts(fullness=fullness, oldest_seconds=oldest_seconds, stuck_lines=stuck_lines, paused=paused)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (facts(), Health.HEALTHY),
        (facts(fullness=0.09, oldest_seconds=299), Health.HEALTHY),
        (facts(fullness=0.1), Health.BUSY),
        (facts(fullness=0.01, oldest_seconds=300), Health.BUSY),
        (facts(fullness=0.5, oldest_seconds=1800), Health.BUSY),
        (facts(fullness=0.51), Health.WARNING),
        (facts(fullness=0.01, oldest_seconds=1801), Health.WARNING),
        (facts(fullness=0.9), Health.CRITICAL),
        (facts(fullness=0.001, stuck_lines=1), Health.CRITICAL),
    ],
)
def test_the_verdict_follows_fullness_age_and_free_slots(given: LineFacts, verdict: Health) -> None:
    assert judge(given).health is verdict


def test_every_verdict_but_healthy_says_why() -> None:
    assert judge(facts()).reasons == ()
    assert judge(facts(fullness=0.95, stuck_lines=2)).reasons == (
        "95% of the longest the line may be",
        "slots are free while others wait",
    )
    assert judge(facts(fullness=0.2, oldest_seconds=2400)).reasons == ("the oldest has waited 40 minutes",)


def test_a_paused_line_warns_while_somebody_waits_and_only_then() -> None:
    assert judge(facts(fullness=0.001, paused=True)).health is Health.WARNING
    assert judge(facts(paused=True)).health is Health.HEALTHY
