"""Parameters go where the action says, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.domain.definition_documents import BadDefinition, action_from_mapping, mapping_of
from attune.domain.http.answers import Next, follow, is_expected, may_help_again
from attune.domain.http.request import BadRequest, build_request, fill, find_request_errors
from attune.domain.json_values import Json


def parameter(name: str) -> dict[str, Json]:
    return {"parameter": name}


def schema(*names: str) -> dict[str, Json]:
    return {"type": "object", "properties": {name: {} for name in names}}


def test_parameters_take_their_places_at_any_depth() -> None:
    template: dict[str, Json] = {
        "method": "POST",
        "url": ["https://api.example/issues/", parameter("id"), "/notes"],
        "headers": {"Authorization": ["Bearer ", parameter("token")]},
        "query": {"page": parameter("page")},
        "json": {"title": parameter("title"), "tags": ["fixed", parameter("tag")]},
    }
    request = build_request(template, {"id": 7, "token": "t", "page": 2, "title": {"a": 1}, "tag": "x"})
    assert request.url == "https://api.example/issues/7/notes"
    assert request.headers == {"Authorization": "Bearer t"}
    assert request.query == {"page": 2}
    assert request.json == {"title": {"a": 1}, "tags": ["fixed", "x"]}


def test_a_parameter_that_was_not_given_leaves_its_place_out() -> None:
    template: dict[str, Json] = {
        "url": "https://api.example",
        "headers": {"Authorization": ["Bearer ", parameter("token")], "Accept": "text/plain"},
        "query": {"page": parameter("page")},
        "json": parameter("json"),
        "method": parameter("method"),
    }
    request = build_request(template, {})
    assert (request.method, request.headers, request.query) == ("GET", {"Accept": "text/plain"}, {})
    assert request.json is msgspec.UNSET


def test_null_is_a_value() -> None:
    assert build_request({"url": "https://a.example", "json": parameter("json")}, {"json": None}).json is None


@given(text=st.text(max_size=50))
def test_no_parameter_in_an_address_leads_anywhere_else(text: str) -> None:
    try:
        filled = fill({"url": ["https://api.example/a/", parameter("x"), "/b"]}, {"x": text})
    except UnicodeEncodeError:
        return
    url = filled["url"]
    assert isinstance(url, str)
    middle = url.removeprefix("https://api.example/a/").removesuffix("/b")
    assert not set("/?#@:\\ ").intersection(middle)
    assert middle not in (".", "..")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"headers": {"Host": "evil"}}, "Host is written by the worker"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "written by the worker"),
        ({"headers": {"A": "b\r\nC: d"}}, "headers.A"),
        ({"headers": {"A b": "c"}}, "headers"),
        ({"headers": {"A": 1}}, "headers.A"),
        ({"method": "GET /x HTTP/1.1"}, "method"),
        ({"json": 1, "body": "x"}, "a request has one body"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"expected_status": ["6xx"]}, "expected_status"),
        ({"expected_status": [99]}, "expected_status"),
        ({"query": {"a": {"b": 1}}}, "query.a"),
        ({"verify": False}, "verify"),
    ],
)
def test_what_cannot_be_sent_is_said(changes: Mapping[str, Json], said: str) -> None:
    with pytest.raises(BadRequest, match=said.replace(".", r"\.")):
        build_request({"url": "https://a.example", **changes}, {})


def test_a_request_without_an_address_is_none() -> None:
    with pytest.raises(BadRequest, match="url"):
        build_request({"url": parameter("url")}, {})


@pytest.mark.parametrize(
    ("template", "pointer"),
    [
        ({"url": parameter("urll")}, "/url/parameter"),
        ({"url": "https://a.example", "json": {"a": [parameter("x")]}}, "/json/a/0/parameter"),
        ({"url": "https://a.example", "method": "P OST"}, "/method"),
        ({"url": "https://a.example", "headers": {"host": "x"}}, "/headers/host"),
        ({"url": "https://a.example", "mehtod": "GET"}, "/mehtod"),
        ({}, ""),
    ],
)
def test_a_mistake_in_the_action_is_found_when_it_is_installed(template: dict[str, Json], pointer: str) -> None:
    assert pointer in [error.pointer for error in find_request_errors(template, schema("url"))]


def test_an_action_keeps_its_request() -> None:
    document: dict[str, Json] = {
        "ref": "demo.ask",
        "runner": "http",
        "http": {"url": parameter("url")},
        "parameters": schema("url"),
    }
    action = action_from_mapping(document)
    assert action_from_mapping(mapping_of(action)) == action


def test_an_action_keeps_its_container() -> None:
    document = {
        "ref": "demo.box",
        "runner": "container",
        "image": "a/b:1",
        "container": {"network": "bridge", "cpus": 0.5},
    }
    action = action_from_mapping(document)
    assert action.container is not None
    assert action_from_mapping(mapping_of(action)) == action


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"runner": "http"}, "'http' is missing"),
        ({"runner": "http", "http": {"url": "https://a.example"}, "command": "x"}, "means nothing to runner http"),
        ({"runner": "container"}, "'image' is missing"),
        ({"runner": "container", "image": "--privileged"}, "image"),
        ({"runner": "container", "image": "a", "command": "x", "entry_point": "y"}, "at most one of"),
        ({"runner": "container", "image": "a", "container": {"privileged": True}}, "privileged"),
        ({"runner": "shell", "command": "x", "image": "a"}, "only for runner container"),
        ({"runner": "shell", "command": "x", "http": {}}, "only for runner http"),
    ],
)
def test_keys_belong_to_their_runner(document: dict[str, Json], said: str) -> None:
    with pytest.raises(BadDefinition) as raised:
        action_from_mapping({"ref": "demo.x", **document})
    assert said in " ".join(f"{error.pointer} {error.message}" for error in raised.value.fields)


@pytest.mark.parametrize(
    ("status", "expected", "verdict"),
    [(200, ("2xx",), True), (404, ("2xx", 404), True), (404, ("2xx",), False), (301, ("2xx", "3xx"), True)],
)
def test_a_status_is_expected_by_number_or_class(
    status: int, expected: tuple[int | str, ...], *, verdict: bool
) -> None:
    assert is_expected(status, expected) is verdict


@pytest.mark.parametrize(
    ("method", "status", "verdict"),
    [
        ("GET", None, True),
        ("GET", 502, True),
        ("GET", 404, False),
        ("POST", None, False),
        ("POST", 502, False),
        ("POST", 503, True),
        ("POST", 429, True),
        ("PUT", 500, True),
        ("PATCH", 500, False),
    ],
)
def test_only_what_does_no_harm_is_worth_another_try(method: str, status: int | None, *, verdict: bool) -> None:
    assert may_help_again(method, status) is verdict


SENT = Next(
    method="POST",
    headers={"authorization": "secret", "x-api-key": "secret", "cookie": "c", "content-type": "t", "accept": "a"},
    with_body=True,
)


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirected_post_becomes_a_get_without_body(status: int) -> None:
    after = follow(status, SENT, same_origin=True)
    assert (after.method, after.with_body, "content-type" in after.headers) == ("GET", False, False)
    assert after.headers["authorization"] == "secret"


@pytest.mark.parametrize("status", [307, 308])
def test_other_redirects_keep_method_and_body(status: int) -> None:
    assert follow(status, SENT, same_origin=True) == SENT


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_another_host_is_told_no_credentials(status: int) -> None:
    assert "secret" not in follow(status, SENT, same_origin=False).headers.values()
    assert set(follow(status, SENT, same_origin=False).headers) == {"accept"}
