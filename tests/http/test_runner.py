"""What an `http` action gives back, what bounds it, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
import zlib
from dataclasses import replace

import msgspec
import pytest

from attune.domain.http.allowed import parse_allow_list
from attune.domain.json_values import Json
from attune.domain.retry import Ending, Outcome
from attune.worker.http.network import Resolve
from attune.worker.runners.http import TRY_AGAIN, HttpRunner
from attune.worker.runners.protocol import Stop, StopReason, TooLate
from tests.http.conftest import Asked, Names, Secured, Server, serving
from tests.witness.waiting import until
from tests.worker.attempts import Printed, make_attempt

MEBIBYTE = 1024 * 1024
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def make_runner(*, resolve: Resolve | None = None, trust: ssl.SSLContext = NOBODY) -> HttpRunner:
    return HttpRunner(allow=parse_allow_list("127.0.0.0/8"), version="test", resolve=resolve, trust=trust)


async def ask(url: str, *, runner: HttpRunner | None = None, **request: object) -> Ending:
    attempt = make_attempt(None, runner="http", http={"url": url, **request})
    async with asyncio.timeout(30):
        return await (runner or make_runner()).run(attempt, Printed())


def result(ending: Ending) -> dict[str, Json]:
    assert isinstance(ending.result, dict), ending
    return ending.result


def code(ending: Ending) -> str | None:
    return ending.failure.code if ending.failure else None


async def test_an_answer_becomes_the_result(server: Server) -> None:
    server.answer("/a", b"hello", Content_Type="text/plain", X_Two="1")
    found = result(await ask(server.url("/a")))
    assert found.pop("elapsed_seconds")
    assert found == {
        "status": 200,
        "url": server.url("/a"),
        "headers": {"content-length": "5", "content-type": "text/plain", "x-two": "1"},
        "json": None,
        "body": "hello",
        "base64": False,
        "redirects": 0,
    }


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/problem+json"])
async def test_json_is_read(server: Server, kind: str) -> None:
    server.answer("/", b'{"n": [1, null]}', Content_Type=kind)
    found = result(await ask(server.url()))
    assert (found["json"], found["body"]) == ({"n": [1, None]}, None)


async def test_what_only_claims_to_be_json_stays_text(server: Server) -> None:
    server.answer("/", b"{oops", Content_Type="application/json")
    found = result(await ask(server.url()))
    assert (found["json"], found["body"], found["base64"]) == (None, "{oops", False)


async def test_bytes_that_are_no_text_come_as_base64(server: Server) -> None:
    server.answer("/", b"a\xff\x00b", Content_Type="application/octet-stream")
    found = result(await ask(server.url()))
    assert found["base64"] is True
    assert base64.b64decode(str(found["body"])) == b"a\xff\x00b"


@pytest.mark.parametrize(
    ("request_", "kind", "body"),
    [
        ({"json": {"a": [1, True, None]}}, "application/json", b'{"a":[1,true,null]}'),
        ({"form": {"a": "x y", "b": [1, True]}}, "application/x-www-form-urlencoded", b"a=x+y&b=1&b=true"),
        ({"body": "ä"}, "text/plain; charset=utf-8", "ä".encode()),
        ({"body": "<a/>", "headers": {"Content-Type": "text/xml"}}, "text/xml", b"<a/>"),
    ],
)
async def test_a_body_is_sent_in_its_form(server: Server, request_: dict[str, object], kind: str, body: bytes) -> None:
    server.answer("/")
    await ask(server.url(), runner=make_runner(), **{"method": "post", **request_})
    (asked,) = server.asked
    assert (asked.method, asked.headers["content-type"], asked.body) == ("POST", kind, body)


async def test_the_query_joins_the_one_in_the_address(server: Server) -> None:
    server.answer("/")
    await ask(server.url("/?a=1"), query={"b": ["x y", 2], "c": False})
    assert server.asked[0].path == "/?a=1&b=x+y&b=2&c=false"


async def test_the_host_is_the_name_and_a_key_makes_effects_happen_once(server: Server) -> None:
    server.answer("/")
    runner = make_runner(resolve=Names(api_example=[["127.0.0.1"]]))
    for method in ("POST", "GET"):
        await ask(server.url("/", host="api.example"), method=method, runner=runner)
    post, get = server.asked
    assert post.headers["host"] == f"api.example:{server.port}"
    assert post.headers["idempotency-key"] == "execution-7"
    assert "idempotency-key" not in get.headers
    assert get.headers["user-agent"] == "attune/test"


@pytest.mark.parametrize(("method", "exit_code"), [("GET", TRY_AGAIN), ("POST", None)])
async def test_an_unexpected_status_fails_and_keeps_the_answer(
    server: Server, method: str, exit_code: int | None
) -> None:
    server.answer("/", b"broken", status="502 Bad Gateway")
    ending = await ask(server.url(), method=method)
    assert (ending.outcome, code(ending), ending.exit_code) == (Outcome.FAILED, "http_status", exit_code)
    assert ending.failure is not None
    assert ending.failure.message == "127.0.0.1 answered 502 Bad Gateway"
    assert result(ending)["body"] == "broken"


async def test_a_status_can_be_expected(server: Server) -> None:
    server.answer("/", status="404 Not Found")
    assert (await ask(server.url(), expected_status=["2xx", 404])).outcome is Outcome.SUCCEEDED
    assert code(await ask(server.url())) == "http_status"


async def test_a_redirect_is_followed_and_said(server: Server) -> None:
    server.answer("/a", status="302 Found", Location="/b?x=1")
    server.answer("/b", b"there")
    found = result(await ask(server.url("/a"), method="POST", json=1))
    assert (found["url"], found["redirects"], found["body"]) == (server.url("/b?x=1"), 1, "there")
    assert [(asked.method, asked.body) for asked in server.asked] == [("POST", b"1"), ("GET", b"")]


async def test_a_redirect_need_not_be_followed(server: Server) -> None:
    server.answer("/a", status="302 Found", Location="/b")
    assert result(await ask(server.url("/a"), follow_redirects=False))["status"] == 302


async def test_redirects_come_to_an_end(server: Server) -> None:
    server.answer("/a", status="302 Found", Location="/a")
    assert code(await ask(server.url("/a"))) == "http_bad_answer"
    assert len(server.asked) == 6


async def test_another_host_gets_no_credentials(server: Server) -> None:
    async with serving() as other:
        server.answer("/", status="302 Found", Location=other.url("/"))
        other.answer("/", b"there")
        await ask(server.url(), headers={"Authorization": "Bearer x", "X-Api-Key": "x", "Cookie": "x", "Accept": "a/b"})
    assert server.asked[0].headers["authorization"] == "Bearer x"
    (asked,) = other.asked
    assert {"authorization", "x-api-key", "cookie"}.isdisjoint(asked.headers)
    assert asked.headers["accept"] == "a/b"


async def test_a_body_is_not_sent_on_to_another_host(server: Server) -> None:
    async with serving() as other:
        server.answer("/", status="307 Temporary Redirect", Location=other.url("/"))
        ending = await ask(server.url(), method="POST", json={"secret": 1})
    assert code(ending) == "http_refused"
    assert other.asked == []


async def test_compressed_answers_are_opened(server: Server) -> None:
    server.answer("/gzip", gzip.compress(b"hi") + gzip.compress(b" there"), Content_Encoding="gzip")
    server.answer("/deflate", zlib.compress(b"hi"), Content_Encoding="deflate")
    assert result(await ask(server.url("/gzip")))["body"] == "hi there"
    assert result(await ask(server.url("/deflate")))["body"] == "hi"


@pytest.mark.parametrize(
    ("content", "encoding", "failure"),
    [
        (gzip.compress(b"\0" * MEBIBYTE, 9) * 200, "gzip", "http_too_large"),
        (b"x" * (10 * MEBIBYTE + 1), "identity", "http_too_large"),
        (gzip.compress(b"hello")[:-9], "gzip", "http_bad_answer"),
        (b"no gzip", "gzip", "http_bad_answer"),
        (b"x", "br", "http_bad_answer"),
        (b"x", "gzip, gzip", "http_bad_answer"),
    ],
    ids=["bomb", "long", "cut", "false", "unknown", "twice"],
)
async def test_what_an_answer_can_unfold_to_is_bounded(
    server: Server, content: bytes, encoding: str, failure: str
) -> None:
    server.answer("/", content, Content_Encoding=encoding)
    assert code(await ask(server.url())) == failure


async def test_an_answer_that_no_row_can_hold_is_handed_on_as_a_whole(server: Server) -> None:
    server.answer("/", b"x" * 2 * MEBIBYTE)
    ending = await ask(server.url())
    assert (ending.outcome, ending.result) == (Outcome.SUCCEEDED, None)
    assert ending.large is not None
    assert msgspec.json.decode(ending.large.content)["body"] == "x" * 2 * MEBIBYTE


async def test_of_an_unexpected_answer_only_what_a_row_can_hold_is_kept(server: Server) -> None:
    server.answer("/", b"x" * 2 * MEBIBYTE, status="404 Not Found")
    ending = await ask(server.url())
    assert (code(ending), ending.large) == ("http_status", None)
    assert (result(ending)["status"], result(ending)["body"]) == (404, None)


async def test_endless_headers_are_not_read_to_their_end(server: Server) -> None:
    server.answer_raw("/", b"HTTP/1.1 200 OK\r\n" + b"X-Long: y\r\n" * 100_000 + b"\r\n")
    server.answer("/many", X_Long="y" * 70_000)
    assert code(await ask(server.url())) == "http_broken_off"
    assert code(await ask(server.url("/many"))) == "http_bad_answer"


@pytest.mark.parametrize("content", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"])
@pytest.mark.parametrize(("method", "exit_code"), [("GET", TRY_AGAIN), ("POST", None)])
async def test_an_exchange_that_breaks_off_is_tried_again_only_if_that_does_no_harm(
    server: Server, content: bytes, method: str, exit_code: int | None
) -> None:
    server.answer_raw("/", content)
    ending = await ask(server.url(), method=method)
    assert (code(ending), ending.exit_code) == ("http_broken_off", exit_code)


async def test_nobody_there_is_worth_another_try(server: Server) -> None:
    async with serving() as gone:
        pass
    ending = await ask(gone.url(), method="POST")
    assert (code(ending), ending.exit_code) == ("http_unreachable", TRY_AGAIN)


async def test_the_next_address_is_tried(server: Server) -> None:
    server.answer("/", b"here")
    runner = make_runner(resolve=Names(api_example=[["127.0.0.9", "127.0.0.1"]]))
    assert result(await ask(server.url("/", host="api.example"), runner=runner))["body"] == "here"


async def hang(_: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def silence(_: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("answer", [hang, silence])
async def test_the_whole_exchange_has_a_time(server: Server, answer: object) -> None:
    server.answers["/"] = answer  # type: ignore[assignment]  # one of the two above
    ending = await ask(server.url(), timeout_seconds=0.3)
    assert (ending.outcome, code(ending), ending.exit_code) == (Outcome.FAILED, "http_timeout", TRY_AGAIN)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (StopReason.CANCELLED, Outcome.CANCELLED),
        (StopReason.TIMEOUT, Outcome.TIMEOUT),
        (StopReason.SHUTDOWN, Outcome.WORKER_LOST),
        (StopReason.LEASE_LOST, Outcome.WORKER_LOST),
    ],
)
async def test_a_request_that_is_stopped_ends_at_once(server: Server, reason: StopReason, outcome: Outcome) -> None:
    server.answers["/"] = silence
    stop = Stop()
    attempt = make_attempt(stop, runner="http", http={"url": server.url(), "timeout_seconds": 600})
    running = asyncio.create_task(make_runner().run(attempt, Printed()))

    async def asked() -> bool:
        return bool(server.asked)

    await until(asked)
    stop.request(reason)
    async with asyncio.timeout(5):
        ending = await running
    assert (ending.outcome, code(ending)) == (outcome, str(reason))


async def test_a_request_that_was_stopped_or_is_too_late_is_never_sent(server: Server) -> None:
    server.answer("/")
    stop = Stop()
    stop.request(StopReason.CANCELLED)
    attempt = make_attempt(stop, runner="http", http={"url": server.url()})
    assert (await make_runner().run(attempt, Printed())).outcome is Outcome.CANCELLED

    def too_late() -> None:
        raise TooLate

    with pytest.raises(TooLate):
        await make_runner().run(
            replace(make_attempt(None, runner="http", http={"url": server.url()}), check_clock=too_late), Printed()
        )
    assert server.asked == []


async def test_a_result_that_breaks_the_promise_fails(server: Server) -> None:
    server.answer("/", b"{}", Content_Type="application/json")
    promise = {"type": "object", "properties": {"json": {"type": "object", "required": ["n"]}}}
    attempt = make_attempt(None, runner="http", http={"url": server.url()}, output_schema=promise)
    ending = await make_runner().run(attempt, Printed())
    assert code(ending) == "bad_output"


async def test_tls_is_spoken_to_the_name_and_its_certificate_checked(secured: Secured) -> None:
    secured.server.answer("/", b"safe")
    names = Names(api_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
    known = make_runner(resolve=names, trust=secured.trust)
    url = secured.server.url("/", host="api.example", scheme="https")
    assert result(await ask(url, runner=known))["body"] == "safe"
    assert secured.server.names == ["api.example"]
    wrong_name = secured.server.url("/", host="other.example", scheme="https")
    assert code(await ask(wrong_name, runner=known)) == "http_unreachable"
    stranger = await ask(url, runner=make_runner(resolve=names))
    assert code(stranger) == "http_unreachable"
    assert stranger.failure is not None
    assert "certificate" in stranger.failure.message


async def test_the_parameters_of_an_attempt_fill_its_request(server: Server) -> None:
    server.answer("/issues/a%2Fb", b"[]", Content_Type="application/json")
    template = {
        "url": [server.url("/issues/"), {"parameter": "id"}],
        "headers": {"Authorization": ["Bearer ", {"parameter": "token"}]},
    }
    attempt = make_attempt(None, runner="http", http=template, parameters={"id": "a/b", "token": "t"})
    ending = await make_runner().run(attempt, Printed())
    assert result(ending)["json"] == []
    assert server.asked[0].headers["authorization"] == "Bearer t"


async def test_a_request_that_cannot_be_made_says_why() -> None:
    ending = await ask("http://a.example/", headers={"Host": "b.example"})
    assert code(ending) == "http_bad_request"
    assert msgspec.json.encode(ending.result) == b"null"
