"""What `attune alert` sends and prints."""

from pathlib import Path

from tests.cli.commands import attune
from tests.cli.stand_in_api import StandInApi

ALERTS = "/api/v1/alerts"
ALERT = {
    "id": 3,
    "name": "queue_long",
    "subject": "line:7",
    "severity": "warning",
    "state": "firing",
    "message": "120 wait in line 7 of action:demo.work",
    "runbook": "docs/how-to/troubleshoot/lines-grow.md",
    "fired_at": "2026-05-04T12:00:00Z",
}


def test_alerts_are_listed_by_state_and_name(home: Path, api: StandInApi) -> None:
    api.answer("GET", ALERTS, {"items": [ALERT], "next_cursor": "abc"})
    done = attune("alert", "list", "--state", "firing", "--name", "queue_long", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert set(api.seen[-1].path.partition("?")[2].split("&")) == {"state=firing", "name=queue_long"}
    assert "120 wait in line 7 of action:demo.work" in done.stdout
    assert "--cursor abc" in done.stderr


def test_a_state_that_does_not_exist_is_refused_before_anybody_is_asked(home: Path, api: StandInApi) -> None:
    assert attune("alert", "list", "--state", "loud", home=home, more=api.environment).returncode == 2
    assert api.seen == []


def test_one_is_shown_with_the_page_that_helps(home: Path, api: StandInApi) -> None:
    api.answer("GET", f"{ALERTS}/3", ALERT)
    done = attune("alert", "show", "3", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert "docs/how-to/troubleshoot/lines-grow.md" in done.stdout
    assert '"name":"queue_long"' in attune(
        "alert", "show", "3", "-o", "json", home=home, more=api.environment
    ).stdout.replace(" ", "")
