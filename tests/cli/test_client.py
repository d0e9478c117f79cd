"""The client: the same calls for synchronous and asynchronous programs."""

import pytest

from attune.client import AsyncAttuneClient, AttuneClient, NoAnswer, Refused, Unreachable, calls
from attune.client.connections import is_loopback
from attune.client.models import Status
from tests.cli.stand_in_api import TOKEN, StandInApi

ACCEPTED = {"id": 9, "status": "requested", "action_ref": "core.echo", "a_later_field": 1}


async def test_both_clients_send_the_same_and_read_the_same(api: StandInApi) -> None:
    api.answer("POST", "/api/v1/executions", ACCEPTED, status=202)
    call = calls.request_execution("core.echo", {"message": "hi"}, wait_seconds=2, idempotency_key="k")
    url = api.environment["ATTUNE_URL"]
    with AttuneClient(url, TOKEN) as attune:
        one = attune.send(call)
    async with AsyncAttuneClient(url, TOKEN) as attune_too:
        other = await attune_too.send(call)
    assert one == other
    assert (one.value.id, one.value.status, one.status) == (9, Status.REQUESTED, 202)
    assert api.seen[0] == api.seen[1]
    assert api.seen[0].path == "/api/v1/executions?wait=2"
    assert api.seen[0].body == {"action_ref": "core.echo", "parameters": {"message": "hi"}}
    assert api.seen[0].authorization == f"Bearer {TOKEN}"


def test_a_refusal_carries_code_and_fields(api: StandInApi) -> None:
    problem = {"detail": "no", "code": "bad_parameters", "errors": [{"pointer": "/n", "message": "missing"}]}
    api.answer("GET", "/api/v1/workers", problem, status=422)
    with AttuneClient(api.environment["ATTUNE_URL"]) as attune, pytest.raises(Refused) as caught:
        attune.send(calls.list_workers())
    assert (caught.value.status, caught.value.code) == (422, "bad_parameters")
    assert [(each.pointer, each.message) for each in caught.value.fields] == [("/n", "missing")]


def test_an_answer_that_is_not_ours_is_said_to_be_that(api: StandInApi) -> None:
    api.answer("GET", "/api/v1/workers", b"<html>hello</html>")
    with AttuneClient(api.environment["ATTUNE_URL"]) as attune, pytest.raises(NoAnswer, match="unlike Attune"):
        attune.send(calls.list_workers())


async def test_nothing_there_is_unreachable() -> None:
    async with AsyncAttuneClient("http://127.0.0.1:1") as attune:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            await attune.send(calls.list_workers())


def test_a_ref_cannot_leave_its_place_in_the_path() -> None:
    assert calls.get_action("../tokens").path == "/api/v1/actions/..%2Ftokens"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:80", True),
        ("http://[::1]:80", True),
        ("http://localhost", True),
        ("http://attune.example", False),
        ("http://127.0.0.1.evil.example", False),
    ],
)
def test_this_machine_is_known_by_its_address(url: str, here: bool) -> None:  # noqa: FBT001 - a column of the table
    assert is_loopback(url) is here
