"""What is promised about logs: one fact per line, no secret in any of them, never the cause of a failure."""

import json
import os
import pickle
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.runtime.logs import redact_event, render_json
from attune.runtime.redact import is_secret_name, redact_field, redact_text
from attune.runtime.secret import Secret, mask_url_password

START = """
import logging, os, sys, structlog, warnings
from attune.runtime.logs import configure_logs
from attune.runtime.secret import Secret
from attune.runtime.settings import LogFormat, LogLevel
"""


def logged(code: str) -> list[dict[str, object]]:
    """Run code in a process of its own, for the set-up of logs is the process's, and read its lines."""
    ended = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    return [json.loads(line) for line in ended.stderr.splitlines()]


def test_away_from_a_terminal_each_line_is_one_json_fact_with_its_context() -> None:
    (line,) = logged(
        "configure_logs('executor')\n"
        "with structlog.contextvars.bound_contextvars(execution_id=7):\n"
        "    structlog.get_logger().info('execution.ended', state='succeeded')"
    )

    assert line.pop("timestamp")
    assert line == {
        "event": "execution.ended",
        "state": "succeeded",
        "execution_id": 7,
        "service": "executor",
        "level": "info",
    }


def test_lines_below_the_level_are_not_written_for_libraries_either() -> None:
    lines = logged(
        "configure_logs('api', LogLevel.WARNING)\n"
        "structlog.get_logger().info('a'); logging.getLogger('lib').info('b')\n"
        "structlog.get_logger().warning('c'); logging.getLogger('lib').warning('d %s', 5)"
    )

    assert [line["event"] for line in lines] == ["c", "d 5"]
    assert lines[1]["logger"] == "lib"


def test_setting_up_twice_does_not_write_lines_twice() -> None:
    assert len(logged("configure_logs('a'); configure_logs('a'); logging.getLogger('lib').error('x')")) == 1


def test_warnings_of_python_become_lines() -> None:
    (line,) = logged("configure_logs('a'); warnings.warn('old thing')")

    assert "old thing" in str(line["event"])


def test_a_traceback_is_logged_with_its_secrets_masked() -> None:
    (line,) = logged(
        "configure_logs('a')\n"
        "try:\n    raise ValueError('cannot reach postgresql://ana:hunter2@db/x')\n"
        "except ValueError as error:\n    structlog.get_logger().error('failed', exc_info=error)"
    )

    assert "ValueError: cannot reach postgresql://ana:****@db/x" in str(line["exception"])
    assert "hunter2" not in json.dumps(line)


def test_a_library_cannot_log_a_secret_url() -> None:
    (line,) = logged("configure_logs('a'); logging.getLogger('lib').error('to %s', 'amqp://u:hunter2@mq')")

    assert line["event"] == "to amqp://u:****@mq"


def test_a_closed_or_full_log_does_not_stop_the_service() -> None:
    code = "configure_logs('a'); structlog.get_logger().error('x'); print('alive', flush=True)"
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run([sys.executable, "-c", START + code], stdout=-1, stderr=full, text=True, check=False)

    assert ended.stdout == "alive\n"


def test_on_a_terminal_lines_are_for_people_and_still_masked() -> None:
    ours, theirs = pty.openpty()
    try:
        code = "configure_logs('a'); structlog.get_logger().info('hello.world', password='hunter2', n=5)"
        subprocess.run([sys.executable, "-c", START + code], stderr=theirs, check=True, env={"NO_COLOR": "1"})
        text = os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)

    assert "hello.world" in text
    assert "n=5" in text
    assert not text.startswith("{")
    assert "\x1b" not in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("db_password", True),
        ("Authorization", True),
        ("Set-Cookie", True),
        ("access_token", True),
        ("api_key", True),
        ("token_id", False),
        ("secret_name", False),
        ("dedupe_key", False),
        ("group_key", False),
        ("execution_id", False),
        ("", False),
    ],
)
def test_secret_fields_are_known_by_name(name: str, secret: bool) -> None:  # noqa: FBT001  a table
    assert is_secret_name(name) is secret


def test_masking_reaches_into_nested_values_and_leaves_numbers() -> None:
    event = {
        "tokens": 3,
        "body": {"user": "ana", "password": "x", "list": [{"secret": "y"}]},
        "s": Secret("z"),
        "b": b"q",
    }

    assert redact_event(None, "info", event) == {
        "tokens": 3,
        "body": {"user": "ana", "password": "****", "list": [{"secret": "****"}]},
        "s": "****",
        "b": "<1 bytes>",
    }


def test_tokens_and_credentials_are_masked_inside_texts() -> None:
    assert redact_text("used att_0123456789abcdef twice") == "used att_**** twice"
    assert redact_text("Authorization: Bearer abcdefgh.ijk") == "Authorization: Bearer ****"
    assert redact_text("http://host:80/path stays") == "http://host:80/path stays"


def test_a_value_that_contains_itself_is_cut() -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless

    assert "…" in str(redact_field("x", endless))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes() | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(event=st.dictionaries(st.text(), values))
def test_every_event_becomes_one_line_of_json(event: dict[str, object]) -> None:
    rendered = render_json(None, "info", redact_event(None, "info", event))

    assert b"\n" not in rendered
    assert set(json.loads(rendered)) == set(event)


@given(secret=st.text(min_size=1, max_size=30), user=st.from_regex(r"[a-z]{0,8}", fullmatch=True))
def test_no_password_in_a_url_survives(secret: str, user: str) -> None:
    if any(letter.isspace() for letter in secret):
        return
    assert mask_url_password(f"amqp://{user}:{secret}@host/x") == f"amqp://{user}:****@host/x"


def test_a_secret_shows_a_mask_in_every_form_and_is_not_pickled() -> None:
    secret = Secret("hunter2")

    assert "hunter2" not in f"{secret} {secret!r} {secret!s} {secret:>10} {[secret]}"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2") != Secret("other")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)
