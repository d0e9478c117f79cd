"""How the command line hands in secrets, follows output and fetches large results."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from tests.cli.commands import attune
from tests.cli.stand_in_api import StandInApi
from tests.cli.test_commands import EXECUTIONS, STREAM, events, execution

CONTENT = b'{"large": true}\n' * 1000


def test_parameters_come_from_a_file_and_words_go_on_top(home: Path, api: StandInApi, tmp_path: Path) -> None:
    api.answer("GET", "/api/v1/actions/demo.login", {"ref": "demo.login", "runner": "shell", "parameters": {}})
    api.answer("POST", EXECUTIONS, execution("requested"), status=202)
    file = tmp_path / "login.json"
    file.write_text(json.dumps({"user": "me", "password": "hunter2"}))

    done = attune("run", "demo.login", "--parameters-file", str(file), "user=you", home=home, more=api.environment)

    assert done.returncode == 0, done.stderr
    body = api.seen[-1].body
    assert isinstance(body, dict)
    assert body["parameters"] == {"user": "you", "password": "hunter2"}


def test_a_file_that_holds_no_parameters_is_refused_without_showing_it(
    home: Path, api: StandInApi, tmp_path: Path
) -> None:
    file = tmp_path / "login.json"
    file.write_text('["hunter2"]')

    done = attune("run", "demo.login", "--parameters-file", str(file), home=home, more=api.environment)

    assert done.returncode == 5
    assert "one JSON object" in done.stderr
    assert "hunter2" not in done.stderr


def test_following_goes_on_behind_what_was_printed_when_the_connection_breaks(home: Path, api: StandInApi) -> None:
    api.answer("GET", f"{EXECUTIONS}/7", execution("running"))
    api.answer("GET", STREAM, events(("stdout", "one\n"), ("stdout", "two"), ended=False), events())

    done = attune("execution", "logs", "7", "-f", home=home, more=api.environment)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "one\ntwo\n"
    streams = [each for each in api.seen if each.path.startswith(STREAM)]
    assert [each.last_event_id for each in streams] == [None, "1-2"]


def test_nothing_is_printed_of_the_output_if_nobody_wants_it(home: Path, api: StandInApi) -> None:
    api.answer("POST", EXECUTIONS, execution("requested"), status=202)
    api.answer("GET", f"{EXECUTIONS}/7", execution("succeeded", result={"said": "hi"}))

    done = attune("run", "core.noop", "--wait", "--no-logs", home=home, more=api.environment)

    assert (done.returncode, done.stdout) == (0, '{"said":"hi"}\n')
    assert not any("logs" in each.path for each in api.seen)


def answer_artifact(api: StandInApi, content: bytes) -> None:
    told = {
        "id": 3,
        "execution_id": 7,
        "attempt": 1,
        "name": "result.json",
        "media_type": "application/json",
        "bytes": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    api.answer("GET", "/api/v1/artifacts", {"items": [told], "next_cursor": None})
    api.answer("GET", "/api/v1/artifacts/3", told)
    api.answer("GET", "/api/v1/artifacts/3/content", content)


def test_an_artifact_is_listed_and_fetched(home: Path, api: StandInApi, tmp_path: Path) -> None:
    answer_artifact(api, CONTENT)
    file = tmp_path / "result.json"

    listed = attune("artifact", "list", "--execution", "7", home=home, more=api.environment)
    printed = attune("artifact", "get", "3", home=home, more=api.environment)
    written = attune("artifact", "get", "3", "--file", str(file), home=home, more=api.environment)

    assert "result.json" in listed.stdout
    assert printed.stdout.encode() == CONTENT
    assert (written.returncode, file.read_bytes()) == (0, CONTENT)


def test_an_artifact_that_did_not_arrive_whole_is_not_taken_for_one(home: Path, api: StandInApi) -> None:
    answer_artifact(api, CONTENT[:-1])

    done = attune("artifact", "get", "3", home=home, more=api.environment)

    assert done.returncode != 0
    assert "did not arrive whole" in done.stderr
