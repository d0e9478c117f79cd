"""What an answer means: whether it was expected, whether asking again may help, and where a redirect leads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

STATUS_PATTERNS_MAX: Final = 50
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
# These keep method and body; the others turn a POST into a GET, as every browser does.
_KEEPING: Final = frozenset({307, 308})
# Asking twice is the same as asking once.
IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
# The server says that it did nothing.
_NOT_DONE: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_EARLY})
# It may have done it or not.
_PERHAPS: Final = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
# What another host may be told; everything else could be a credential.
_KEPT_ACROSS_HOSTS: Final = frozenset({"accept", "accept-language", "user-agent"})
_ABOUT_BODY: Final = "content-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Whom a request is for."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """How a redirect is followed."""

    method: str
    headers: Mapping[str, str]
    with_body: bool


def is_expected(status: int, expected: Sequence[int | str]) -> bool:
    """Whether an answer counts as success."""
    return status in expected or f"{status // 100}xx" in expected


def may_help_again(method: str, status: int | None) -> bool:
    """Whether the same request may be sent again: without an answer (None) only if twice is the same as once."""
    if status in _NOT_DONE:
        return True
    return method in IDEMPOTENT and (status is None or status in _PERHAPS)


def follow(status: int, request: Next, *, same_origin: bool) -> Next:
    """The request that follows a redirect: without credentials if it goes to somebody else."""
    keeps = status in _KEEPING or request.method in ("GET", "HEAD")
    with_body = keeps and request.with_body
    headers = {
        name: value
        for name, value in request.headers.items()
        if (same_origin or name.lower() in _KEPT_ACROSS_HOSTS)
        and (with_body or not name.lower().startswith(_ABOUT_BODY))
    }
    return Next(method=request.method if keeps else "GET", headers=headers, with_body=with_body)
