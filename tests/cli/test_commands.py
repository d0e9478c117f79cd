"""What commands send to the API, what they print of its answers, and which exit code they leave with."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import attune
from tests.cli.stand_in_api import TOKEN, StandInApi

ECHO = {
    "ref": "core.echo",
    "runner": "native",
    "description": "Says it again.",
    "parameters": {
        "type": "object",
        "properties": {"message": {"type": "string", "description": "What to say."}, "times": {"type": "integer"}},
        "required": ["message"],
    },
}
EXECUTIONS = "/api/v1/executions"
STREAM = f"{EXECUTIONS}/7/logs/stream"


def events(*pieces: tuple[str, str], ended: bool = True) -> bytes:
    """A stream of what an execution wrote."""
    told = [
        f"id: 1-{seq}\nevent: log\ndata: {json.dumps({'stream': stream, 'text': text})}\n\n"
        for seq, (stream, text) in enumerate(pieces, start=1)
    ]
    return "".join([": hello\n\n", *told, "event: end\ndata: {}\n\n" if ended else ""]).encode()


def execution(status: str, **more: object) -> dict[str, object]:
    return {"id": 7, "action_ref": "core.echo", "status": status, "attempt": 1, **more}


def test_values_are_read_as_the_action_declares_them(home: Path, api: StandInApi) -> None:
    api.answer("GET", "/api/v1/actions/core.echo", ECHO)
    api.answer("POST", EXECUTIONS, execution("requested"), status=202)
    done = attune("run", "core.echo", "message=1", "times=3", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert api.seen[-1].body == {"action_ref": "core.echo", "parameters": {"message": "1", "times": 3}}
    assert api.seen[-1].authorization == f"Bearer {TOKEN}"


def test_a_value_of_the_wrong_type_never_reaches_the_api(home: Path, api: StandInApi) -> None:
    api.answer("GET", "/api/v1/actions/core.echo", ECHO)
    done = attune("run", "core.echo", "times=often", home=home, more=api.environment)
    assert done.returncode == 5
    assert "times" in done.stderr
    assert [each.method for each in api.seen] == ["GET"]


@pytest.mark.parametrize(
    "words",
    [("-o", "json", "run", "core.noop"), ("run", "-o", "json", "core.noop"), ("run", "core.noop", "-o", "json")],
)
def test_the_form_of_output_may_be_said_anywhere(home: Path, api: StandInApi, words: tuple[str, ...]) -> None:
    body = b'{"id": 7,   "status": "requested", "later": [1]}'
    api.answer("POST", EXECUTIONS, body, status=202)
    done = attune(*words, home=home, more=api.environment)
    assert done.stdout == body.decode() + "\n", "json is the body of the API, unchanged"


def test_waiting_prints_both_streams_and_the_result(home: Path, api: StandInApi) -> None:
    api.answer("POST", EXECUTIONS, execution("requested"), status=202)
    api.answer("GET", f"{EXECUTIONS}/7", execution("running"), execution("succeeded", result={"said": "hi"}))
    # The first stream breaks off in the middle; the second goes on behind what was seen.
    api.answer("GET", STREAM, events(("stdout", "out\n"), ended=False), events(("stdout", ""), ("stderr", "err\n")))
    done = attune("run", "core.noop", "--wait", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == 'out\n{"said":"hi"}\n'
    assert done.stderr == "err\nexecution 7 succeeded\n"


def test_a_failed_execution_is_a_failed_command(home: Path, api: StandInApi) -> None:
    ended = execution("failed", result={"exit_code": 3}, error={"code": "exit_code", "message": "it ended with 3"})
    api.answer("POST", EXECUTIONS, execution("requested"), status=202)
    api.answer("GET", f"{EXECUTIONS}/7", ended)
    api.answer("GET", STREAM, events(("stderr", "no\n")))
    done = attune("run", "core.noop", "--wait", home=home, more=api.environment)
    assert done.returncode == 1
    assert "no\n" in done.stderr
    assert "failed, exit code 3: exit_code: it ended with 3" in done.stderr


def test_waiting_too_long_is_a_timeout(home: Path, api: StandInApi) -> None:
    api.answer("POST", EXECUTIONS, execution("requested"), status=202)
    api.answer("GET", f"{EXECUTIONS}/7", execution("running"))
    api.answer("GET", STREAM, events(ended=False))
    done = attune("run", "core.noop", "--wait", "--timeout", "0.3", home=home, more=api.environment)
    assert done.returncode == 6
    assert "execution 7 is running" in done.stderr


def test_help_about_an_action_shows_its_parameters(home: Path, api: StandInApi) -> None:
    api.answer("GET", "/api/v1/actions/core.echo", ECHO)
    done = attune("run", "core.echo", "--help", home=home, more=api.environment)
    assert done.returncode == 0
    assert "message  string, required  What to say." in done.stdout
    assert "times" in done.stdout


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (401, "unauthenticated", 3),
        (403, "forbidden", 3),
        (404, "not_found", 4),
        (409, "conflict", 5),
        (422, "bad_parameters", 5),
        (503, "unavailable", 7),
        (500, "internal", 1),
    ],
)
def test_refusals_have_exit_codes(home: Path, api: StandInApi, status: int, code: str, exit_code: int) -> None:
    problem = {"detail": "because", "code": code, "status": status, "errors": [{"pointer": "/n", "message": "missing"}]}
    api.answer("GET", "/api/v1/workers", problem, status=status)
    done = attune("worker", "list", home=home, more=api.environment)
    assert done.returncode == exit_code
    assert done.stderr == "attune: because\n  /n: missing\n"
    assert not done.stdout


def test_nothing_at_the_address_is_unreachable(home: Path) -> None:
    more = {"ATTUNE_URL": "http://127.0.0.1:1", "ATTUNE_TOKEN": "x"}
    done = attune("worker", "list", home=home, more=more)
    assert done.returncode == 7
    assert "http://127.0.0.1:1" in done.stderr


def test_a_token_prints_as_its_secret_alone(home: Path, api: StandInApi) -> None:
    api.answer("POST", "/api/v1/tokens", {"id": 1, "name": "x", "secret": "att_new"}, status=201)
    words = ("token", "create", "--name", "x", "--permission-set", "viewer", "-o", "value")
    done = attune(*words, home=home, more=api.environment)
    assert (done.stdout, done.stderr) == ("att_new\n", "")
    assert api.seen[-1].body == {"name": "x", "permission_set": "viewer"}


def test_a_table_does_not_obey_what_it_shows(home: Path, api: StandInApi) -> None:
    worker = {"id": 1, "name": "evil\x1b[2Jname", "status": "active"}
    api.answer("GET", "/api/v1/workers", {"items": [worker], "next_cursor": None})
    done = attune("worker", "list", home=home, more=api.environment)
    assert "\x1b" not in done.stdout
    assert "evil\\x1b[2Jname" in done.stdout


@pytest.mark.parametrize(("output", "wanted"), [("name", "worker-1\n"), ("yaml", "- id: 1\n")])
def test_other_forms_of_a_list(home: Path, api: StandInApi, output: str, wanted: str) -> None:
    worker = {"id": 1, "name": "worker-1", "status": "active"}
    api.answer("GET", "/api/v1/workers", {"items": [worker], "next_cursor": None})
    assert wanted in attune("worker", "list", "-o", output, home=home, more=api.environment).stdout


def test_a_pack_is_installed_from_where_the_person_stands(home: Path, api: StandInApi, tmp_path: Path) -> None:
    api.answer("POST", "/api/v1/packs:install", {"ref": "demo", "version": "1.0.0"})
    done = attune("pack", "install", str(tmp_path), home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert api.seen[-1].body == {"path": str(tmp_path.resolve())}


def test_the_home_token_does_not_travel_to_another_machine(home: Path) -> None:
    (home / "secrets").mkdir(parents=True)
    (home / "secrets" / "cli_token").write_text("att_admin\n")
    done = attune("worker", "list", home=home, more={"ATTUNE_URL": "http://attune.example:8080"})
    assert done.returncode == 3
    assert "ATTUNE_TOKEN" in done.stderr


def test_logging_in_keeps_the_token_for_its_owner_only(home: Path, api: StandInApi) -> None:
    api.answer("POST", "/auth/login", {"access_token": "att_fresh"})
    more = {"ATTUNE_URL": api.environment["ATTUNE_URL"], "ATTUNE_PASSWORD": "pw"}
    done = attune("login", home=home, more=more)
    assert done.returncode == 0, done.stderr
    kept = home / "secrets" / "cli_token"
    assert kept.read_text() == "att_fresh\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(json.dumps(api.seen[-1].body)) == {"login": "admin", "password": "pw"}
