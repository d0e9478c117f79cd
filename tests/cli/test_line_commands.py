"""What `attune line` and `attune why` send, print and leave with."""

from pathlib import Path

import pytest

from tests.cli.commands import attune
from tests.cli.stand_in_api import StandInApi

LINE = {"id": 4, "scope": "action:demo.slow", "group": {"host": "a"}, "limit": 2, "active": 2, "waiting": 7}
LINES = "/api/v1/lines"


def page(*items: object, next_cursor: str | None = None) -> dict[str, object]:
    return {"items": list(items), "next_cursor": next_cursor}


def test_lines_are_listed_and_the_way_to_more_is_told(home: Path, api: StandInApi) -> None:
    api.answer("GET", LINES, page(LINE, next_cursor="abc"))
    done = attune("line", "list", "--action", "demo.slow", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert api.seen[-1].path == f"{LINES}?action_ref=demo.slow"
    assert done.stdout.splitlines()[1].split() == ["4", "action:demo.slow", '{"host":"a"}', "2", "2", "7"]
    assert "--cursor abc" in done.stderr


@pytest.mark.parametrize("which", ["4", "demo.slow"])
def test_a_log_is_found_by_line_or_action_and_printed_as_it_came(home: Path, api: StandInApi, which: str) -> None:
    api.answer("GET", LINES, page(LINE))
    body = b'{"items": [{"n": 1, "op": "enq",  "execution_id": 9}], "next_cursor": null}'
    api.answer("GET", f"{LINES}/4/admissions", body)
    done = attune("line", "log", which, "-o", "json", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == body.decode() + "\n"


def test_an_action_with_several_lines_is_not_guessed_at(home: Path, api: StandInApi) -> None:
    api.answer("GET", LINES, page(LINE, {**LINE, "id": 5}))
    done = attune("line", "pause", "demo.slow", home=home, more=api.environment)
    assert done.returncode == 2
    assert "name one: 4, 5" in done.stderr
    assert [each.method for each in api.seen] == ["GET"]


def test_an_action_without_a_line_is_told(home: Path, api: StandInApi) -> None:
    api.answer("GET", LINES, page())
    done = attune("line", "show", "demo.slow", home=home, more=api.environment)
    assert done.returncode == 4
    assert "demo.slow has no line" in done.stderr


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_line_is_held_and_released(home: Path, api: StandInApi, verb: str) -> None:
    api.answer("POST", f"{LINES}/4/{verb}", {**LINE, "paused": verb == "pause"})
    done = attune("line", verb, "4", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert (api.seen[-1].method, api.seen[-1].path) == ("POST", f"{LINES}/4/{verb}")


def test_one_line_or_all_are_cleared_but_never_by_forgetting_to_say_which(home: Path, api: StandInApi) -> None:
    api.answer("POST", f"{LINES}/4/clear", {"lines": 1, "cancelled": 7})
    api.answer("POST", f"{LINES}:clear", {"lines": 3, "cancelled": 9})
    assert "7" in attune("line", "clear", "4", home=home, more=api.environment).stdout
    assert "9" in attune("line", "clear", "--all", home=home, more=api.environment).stdout
    seen = len(api.seen)
    for words in ((), ("4", "--all")):
        done = attune("line", "clear", *words, home=home, more=api.environment)
        assert done.returncode == 2
        assert "name one line, or say --all" in done.stderr
    assert len(api.seen) == seen


def test_a_line_is_shown_field_by_field(home: Path, api: StandInApi) -> None:
    api.answer("GET", f"{LINES}/4", LINE)
    done = attune("line", "show", "4", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert "waiting: 7" in done.stdout


def test_the_history_of_an_actions_lines_is_a_table_of_steps(home: Path, api: StandInApi) -> None:
    step = {"at": "2026-01-31T12:00:00Z", "enqueued": 5, "admitted": 3, "completed": 2, "removed": 1, "waiting_max": 4}
    api.answer("GET", "/api/v1/actions/demo.slow/queue-stats/history", page({**step, "oldest_seconds": 1.5}))
    words = ("line", "history", "demo.slow", "--since", "2026-01-31T00:00:00Z", "--step", "3600")
    done = attune(*words, home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert api.seen[-1].path.endswith("/history?since=2026-01-31T00%3A00%3A00Z&step=3600")
    assert done.stdout.splitlines()[1].split() == ["2026-01-31T12:00:00Z", "5", "3", "2", "1", "4", "1.5"]


def test_a_history_in_which_nothing_happened_says_so(home: Path, api: StandInApi) -> None:
    api.answer("GET", "/api/v1/actions/demo.slow/queue-stats/history", page())
    done = attune("line", "history", "demo.slow", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert "nothing happened" in done.stderr


def test_why_is_one_sentence(home: Path, api: StandInApi) -> None:
    answer = {"sentence": "position 4 of 9 in line demo.slow", "code": "in_line", "facts": {"attempt": 0}}
    api.answer("GET", "/api/v1/executions/7/why", answer)
    done = attune("why", "7", home=home, more=api.environment)
    assert done.stdout == "position 4 of 9 in line demo.slow\n"
    assert attune("why", "7", "-o", "name", home=home, more=api.environment).stdout == "in_line\n"
