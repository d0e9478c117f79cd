"""Runs `http` actions: one guarded request by the worker itself, no process."""

import asyncio
import base64
import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import msgspec

from attune.domain.http.allowed import Allowed, Refused
from attune.domain.http.answers import IDEMPOTENT, is_expected, may_help_again
from attune.domain.http.request import BadRequest, Request, build_request
from attune.domain.json_values import Json
from attune.domain.retry import Ending
from attune.runtime.clock import monotonic
from attune.worker.http.decoding import AnswerTooLarge, Undecodable
from attune.worker.http.exchange import Answer, Broken, exchange
from attune.worker.http.network import Network, Resolve, Unreachable, default_trust, system_resolver
from attune.worker.results import finish_with, storable_text
from attune.worker.runners.protocol import Attempt, Output, failed, stopped
from attune.worker.runners.stopping import Stopped, until_stopped

# What a script would exit with to say "try again later"; `retry_on: [75]` retries these failures and no others.
TRY_AGAIN: Final = 75


class HttpRunner:
    """One request for each attempt; stopping ends it at once."""

    def __init__(
        self,
        *,
        allow: Sequence[Allowed],
        version: str,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._network = Network(resolve=resolve or system_resolver(), allow=allow)
        self._version = version
        self._trust = trust

    async def run(self, attempt: Attempt, output: Output) -> Ending:  # noqa: ARG002  the answer is the result
        work = attempt.work
        parameters = work.parameters if isinstance(work.parameters, dict) else {}
        template = work.http if isinstance(work.http, dict) else {}
        try:
            request = build_request(template, parameters)
        except BadRequest as error:
            return failed(attempt, "http_bad_request", str(error))
        if attempt.stop.reason is not None:
            return stopped(attempt, attempt.stop.reason)
        attempt.check_clock()
        try:
            return await until_stopped(attempt, self._ask(attempt, request))
        except Stopped as early:
            return stopped(attempt, early.reason)

    async def _ask(self, attempt: Attempt, request: Request) -> Ending:
        method = request.method.upper()
        began = monotonic()
        try:
            async with asyncio.timeout(request.timeout_seconds):
                answer = await self._exchange(attempt, request)
        except _TROUBLE as error:
            return _trouble(attempt, error)
        except TimeoutError:
            again = TRY_AGAIN if may_help_again(method, None) else None
            message = f"{_place(request)} did not answer within {request.timeout_seconds:g} s"
            return failed(attempt, "http_timeout", message, exit_code=again)
        return _ending(attempt, request, answer, elapsed_seconds=monotonic() - began)

    async def _exchange(self, attempt: Attempt, request: Request) -> Answer:
        headers = {"accept": "*/*", "user-agent": f"attune/{self._version}"}
        if request.method.upper() not in IDEMPOTENT:
            # The same for every attempt, so that a server that knows the header does it once.
            headers["idempotency-key"] = f"execution-{attempt.work.execution_id}"
        if self._trust is None:
            self._trust = await asyncio.to_thread(default_trust)
        return await exchange(request, headers, network=self._network, trust=self._trust)


_TROUBLE: Final = (Refused, BadRequest, AnswerTooLarge, Undecodable, Unreachable, Broken)


def _trouble(attempt: Attempt, error: Exception) -> Ending:
    match error:
        case Refused():
            return failed(attempt, "http_refused", str(error))
        case BadRequest():
            return failed(attempt, "http_bad_request", str(error))
        case AnswerTooLarge():
            return failed(attempt, "http_too_large", str(error))
        case Unreachable():
            return failed(attempt, "http_unreachable", str(error), exit_code=TRY_AGAIN)
        case Broken(may_help_again=again):
            return failed(attempt, "http_broken_off", str(error), exit_code=TRY_AGAIN if again else None)
        case _:
            return failed(attempt, "http_bad_answer", str(error))


def _ending(attempt: Attempt, request: Request, answer: Answer, *, elapsed_seconds: float) -> Ending:
    result = _result(answer, elapsed_seconds=elapsed_seconds)
    if is_expected(answer.status, request.expected_status):
        return finish_with(attempt, result, seen=_without_content(result))
    again = TRY_AGAIN if may_help_again(answer.method, answer.status) else None
    message = f"{_place(request)} answered {_say(answer.status)}"
    kept = finish_with(attempt, result)
    # What would have become an artifact of a success is too much for the row of a failure.
    seen = _without_content(result) if kept.failure or kept.large else result
    return failed(attempt, "http_status", message, result=seen, exit_code=again)


def _result(answer: Answer, *, elapsed_seconds: float) -> dict[str, Json]:
    """JSON as what it says, other text as text, and bytes that are no text as base64."""
    found, is_json = _read_json(answer)
    text = None if is_json else _read_text(answer.content)
    body = None if is_json else base64.b64encode(answer.content).decode() if text is None else storable_text(text)
    return {
        "status": answer.status,
        "url": answer.url,
        "headers": {storable_text(name): storable_text(value) for name, value in answer.headers.items()},
        "json": found,
        "body": body,
        "base64": not is_json and text is None,
        "redirects": answer.redirects,
        "elapsed_seconds": round(elapsed_seconds, 6),
    }


def _without_content(result: Mapping[str, Json]) -> Json:
    """What is worth keeping of an answer that cannot be kept."""
    return {**result, "json": None, "body": None, "headers": {}}


def _read_json(answer: Answer) -> tuple[Json, bool]:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not answer.content or not (kind == "application/json" or kind.endswith("+json")):
        return None, False
    try:
        return msgspec.json.decode(answer.content), True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, False


def _read_text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _place(request: Request) -> str:
    """The host alone: the rest of an address may hold what is nobody's business."""
    return urlsplit(request.url).hostname or "the server"


def _say(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
