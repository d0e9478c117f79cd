"""The `http` actions that every installation has, as they are in the pack."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from attune.domain.definitions import ActionDefinition, Runner
from attune.domain.http.allowed import parse_allow_list
from attune.domain.json_values import Json
from attune.domain.parameters import BadParameters, validate_parameters
from attune.domain.retry import Ending, Outcome
from attune.packs.read import read_pack
from attune.packs.shipped import find_core_pack
from attune.worker.runners.http import HttpRunner
from tests.http.conftest import Server
from tests.worker.attempts import Printed, make_attempt

ACTIONS = {
    action.ref: action for action in read_pack(find_core_pack()).definition.actions if action.runner is Runner.HTTP
}


async def run(action: ActionDefinition, **parameters: Json) -> Ending:
    runner = HttpRunner(
        allow=parse_allow_list("127.0.0.1"), version="test", trust=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    attempt = make_attempt(
        None,
        runner=action.runner,
        http=action.http,
        parameters=validate_parameters(action.parameters, parameters),
        output_schema=action.output,
    )
    async with asyncio.timeout(30):
        return await runner.run(attempt, Printed())


@pytest.mark.parametrize(
    ("ref", "method", "more"),
    [
        ("core.http", "DELETE", {"method": "DELETE"}),
        ("core.http", "PUT", {"method": "PUT", "form": {"a": "b"}}),
        ("core.http.get", "GET", {}),
        ("core.http.post", "POST", {"json": {"n": 1}}),
    ],
)
async def test_each_sends_what_it_promises(server: Server, ref: str, method: str, more: dict[str, Json]) -> None:
    server.answer("/", b'{"ok": true}', Content_Type="application/json")
    ending = await run(
        ACTIONS[ref], url=server.url(), headers={"X-A": "1"}, authorization="Bearer t", query={"q": 1}, **more
    )
    assert ending.outcome is Outcome.SUCCEEDED, ending
    (asked,) = server.asked
    assert (asked.method, asked.path) == (method, "/?q=1")
    assert (asked.headers["x-a"], asked.headers["authorization"]) == ("1", "Bearer t")
    assert isinstance(ending.result, dict)
    assert ending.result["json"] == {"ok": True}


@pytest.mark.parametrize("ref", sorted(ACTIONS))
async def test_each_refuses_what_leads_inwards(server: Server, ref: str) -> None:
    more: dict[str, Json] = {"json": 1} if ref == "core.http.post" else {}
    ending = await run(ACTIONS[ref], url="http://169.254.169.254/latest/meta-data/", **more)
    assert ending.failure is not None
    assert ending.failure.code == "http_refused"


@pytest.mark.parametrize(
    "parameters",
    [{}, {"url": ""}, {"url": "http://a.example", "method": "CONNECT"}, {"url": "http://a.example", "verify": False}],
)
def test_nonsense_is_refused_before_anything_runs(parameters: dict[str, Json]) -> None:
    with pytest.raises(BadParameters):
        validate_parameters(ACTIONS["core.http"].parameters, parameters)


def test_an_authorization_is_marked_as_a_secret_everywhere() -> None:
    for action in ACTIONS.values():
        schema = action.parameters["properties"]
        assert isinstance(schema, dict)
        assert schema["authorization"]["secret"] is True  # type: ignore[index,call-overload]  # an object, by its schema
