"""Errors become answers: the family decides the status, and nobody sees more than they should (RFC 9457)."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException

from attune.domain.errors import (
    AttuneError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from attune.operations.lines.join_lines import QueueFull
from attune.runtime.batching import BatcherClosed, Overloaded
from attune.runtime.clock import new_uuid
from attune.storage.database import may_work_later

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = 1
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_REQUEST_ID_KEY: Final = "attune_request_id"

AnyRequest = Request[Any, Any, Any]


class BadRequest(Invalid):
    """The request cannot even be read: its query, its headers or its JSON."""

    code = "bad_request"


class TooLarge(Invalid):
    """The body is larger than this installation accepts."""

    code = "body_too_large"


class WrongMediaType(Invalid):
    """The body is not JSON, or does not say that it is."""

    code = "wrong_media_type"


class Throttled(AttuneError):
    """Too many attempts; the time to wait is part of the answer."""

    code = "too_many_attempts"

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


# The first family that fits counts, so the special ones come first.
STATUSES: Final[tuple[tuple[type[AttuneError], int], ...]] = (
    (Unauthenticated, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (TooLarge, 413),
    (WrongMediaType, 415),
    (BadRequest, 400),
    (Invalid, 422),
    (Conflict, 409),
    (Throttled, 429),
    (QueueFull, 429),
    (Unavailable, 503),
)
TITLES: Final = {
    400: "The request cannot be read",
    401: "Who is asking?",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible with this method",
    409: "The world has moved on",
    413: "Too large",
    415: "Not JSON",
    422: "The request is wrong",
    429: "Too much at once",
    500: "An error on our side",
    503: "Not at the moment",
}


class ProblemField(msgspec.Struct, kw_only=True, frozen=True):
    """One thing wrong with one part of the request, named by its JSON pointer."""

    pointer: str
    message: str


class Problem(msgspec.Struct, kw_only=True, frozen=True):
    """Why a request was refused."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[ProblemField] = []


def request_id_of(request: AnyRequest) -> str:
    """The asker's name for the request where it sent a sensible one, or a fresh one; the same for the whole request."""
    scope: dict[str, Any] = request.scope  # type: ignore[assignment]  # a TypedDict that others extend too
    if _REQUEST_ID_KEY not in scope:
        given = request.headers.get("x-request-id", "")
        scope[_REQUEST_ID_KEY] = given if _REQUEST_ID.fullmatch(given) else str(new_uuid())
    return str(scope[_REQUEST_ID_KEY])


def standard_headers(request: AnyRequest) -> dict[str, str]:
    """What every answer carries."""
    return {
        "X-Request-Id": request_id_of(request),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def answer_error(request: AnyRequest, error: Exception) -> Response[bytes]:
    """The answer to a request that failed, whatever the reason."""
    known = _known(error)
    if known is None:
        log = structlog.get_logger()
        log.error(
            "api.failed",
            request_id=request_id_of(request),
            method=request.method,
            path=request.url.path,
            exc_info=error,
        )
        known = AttuneError("something went wrong; the log has the details under this request id", code="internal")
    status = _status_of(known, error)
    problem = Problem(
        title=TITLES.get(status, "Refused"),
        status=status,
        detail=known.message,
        code=known.code,
        request_id=request_id_of(request),
        errors=[ProblemField(pointer=field.pointer, message=field.message) for field in known.fields],
    )
    headers = {**standard_headers(request), **_extra_headers(known, error, status)}
    return Response(content=msgspec.json.encode(problem), status_code=status, media_type=MEDIA_TYPE, headers=headers)


def _known(error: Exception) -> AttuneError | None:
    """The error in our own families; None means a bug."""
    if isinstance(error, AttuneError):
        return error
    if isinstance(error, HTTPException) and error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return _from_router(error)
    if isinstance(error, Overloaded | BatcherClosed):
        return Unavailable("too much is waiting already; try again later", code="overloaded")
    if may_work_later(error):
        return Unavailable("the database does not answer; try again later", code="database_unavailable")
    return None


def _from_router(error: HTTPException) -> AttuneError:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NotFound("there is no such route; GET /openapi.json lists all of them", code="no_such_route")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return Invalid("this route does not know this method", code="method_not_allowed")
    return BadRequest("the request cannot be read")


def _status_of(known: AttuneError, error: Exception) -> int:
    if isinstance(error, HTTPException):
        return min(error.status_code, 500)
    return next((status for family, status in STATUSES if isinstance(known, family)), 500)


def _extra_headers(known: AttuneError, error: Exception, status: int) -> Mapping[str, str]:
    if isinstance(known, Throttled):
        return {"Retry-After": str(known.retry_after_seconds)}
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"Retry-After": str(RETRY_AFTER_SECONDS)}
    if status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, HTTPException) and error.headers:
        return {name: value for name, value in error.headers.items() if name.lower() == "allow"}
    return {}
