"""What `attune dead-letter` and the stopping of executions send, print and leave with."""

from pathlib import Path

import pytest

from tests.cli.commands import attune
from tests.cli.stand_in_api import StandInApi

LETTERS = "/api/v1/dead-letters"
LETTER = {"id": 4, "reason": "expired", "type": "execution.dispatched", "items": [[7, 1]], "outcome": None}
VERDICT = {"id": 4, "effect": True, "outcome": "replayed", "message": "sent again"}


def test_dead_letters_are_listed_by_what_they_are_about(home: Path, api: StandInApi) -> None:
    api.answer("GET", LETTERS, {"items": [LETTER], "next_cursor": "abc"})
    done = attune(
        "dead-letter", "list", "--open", "--worker", "3", "--reason", "expired", home=home, more=api.environment
    )
    assert done.returncode == 0, done.stderr
    assert set(api.seen[-1].path.partition("?")[2].split("&")) == {"open=true", "worker_id=3", "reason=expired"}
    assert "execution.dispatched" in done.stdout
    assert "--cursor abc" in done.stderr


def test_one_is_shown_as_it_came(home: Path, api: StandInApi) -> None:
    body = b'{"id":4,  "reason":"expired","deaths":["worker.3.executions expired"]}'
    api.answer("GET", f"{LETTERS}/4", body)
    done = attune("dead-letter", "show", "4", "-o", "json", home=home, more=api.environment)
    assert done.stdout == body.decode() + "\n"
    assert "worker.3.executions" in attune("dead-letter", "show", "4", home=home, more=api.environment).stdout


def test_stats_are_a_table_and_a_sentence(home: Path, api: StandInApi) -> None:
    group = {"action": "demo.work", "worker": None, "reason": "expired", "count": 3, "open": 0, "failed_executions": 1}
    api.answer("GET", f"{LETTERS}/stats", {"open": 2, "unhandled": 1, "last_minute": 3, "groups": [group]})
    done = attune("dead-letter", "stats", "--group-by", "action,reason", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split() == ["demo.work", "expired", "3", "0", "1"]
    assert "2 wait for a person, 1 for the handler" in done.stderr


@pytest.mark.parametrize("verb", ["replay", "drop"])
def test_one_a_selection_or_all_but_never_by_forgetting_to_say_which(home: Path, api: StandInApi, verb: str) -> None:
    api.answer("POST", f"{LETTERS}/4/{verb}", VERDICT)
    api.answer("POST", f"{LETTERS}:{verb}", {"items": [VERDICT], "more": False})
    assert attune("dead-letter", verb, "4", home=home, more=api.environment).returncode == 0
    assert api.seen[-1].path == f"{LETTERS}/4/{verb}"
    assert attune("dead-letter", verb, "--all", home=home, more=api.environment).returncode == 0
    assert attune("dead-letter", verb, "--action", "demo.work", home=home, more=api.environment).returncode == 0
    assert "action_ref=demo.work" in api.seen[-1].path
    asked = len(api.seen)
    assert attune("dead-letter", verb, home=home, more=api.environment).returncode == 2
    assert attune("dead-letter", verb, "4", "--all", home=home, more=api.environment).returncode == 2
    assert len(api.seen) == asked


def test_an_execution_is_cancelled_by_force(home: Path, api: StandInApi) -> None:
    api.answer("POST", "/api/v1/executions/7/cancel", {"id": 7, "status": "cancelled"})
    assert attune("execution", "cancel", "7", "--force", home=home, more=api.environment).returncode == 0
    assert api.seen[-1].path == "/api/v1/executions/7/cancel?force=true"


def test_what_came_too_late_is_shown_beside_the_execution(home: Path, api: StandInApi) -> None:
    api.answer("GET", "/api/v1/executions/7", {"id": 7, "status": "succeeded", "attempt": 2})
    late = {"attempt": 1, "worker": 3, "outcome": "succeeded", "at": "2026-01-02T00:00:00Z"}
    api.answer("GET", "/api/v1/executions/7/late-results", [late])
    shown = attune("execution", "show", "7", home=home, more=api.environment).stdout
    assert "attempt 1 on worker 3 reported succeeded" in shown
    assert attune("execution", "late-results", "7", home=home, more=api.environment).stdout.split()[4:7] == [
        "1",
        "3",
        "succeeded",
    ]
