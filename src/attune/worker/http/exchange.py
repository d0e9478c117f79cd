"""One request and its answer, redirects included; every hop is checked as if it were the first."""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

import httpcore2
import httpx2
import msgspec

from attune.domain.http.allowed import Refused
from attune.domain.http.answers import REDIRECTS, Next, follow, may_help_again
from attune.domain.http.request import BadRequest, Request
from attune.domain.json_values import Json
from attune.worker.http.decoding import ACCEPTED, Undecodable, read_content
from attune.worker.http.network import CONNECT_SECONDS_MAX, Network, Unreachable

REDIRECTS_MAX: Final = 5
HEADERS_BYTES_MAX: Final = 64 * 1024
_PORT_MAX: Final = 65_535
_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")


class Broken(Exception):
    """The other side was reached and the exchange did not come to its end."""

    def __init__(self, message: str, *, may_help_again: bool) -> None:
        super().__init__(message)
        self.may_help_again = may_help_again


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, and from where after all redirects."""

    status: int
    url: str
    method: str
    headers: Mapping[str, str]
    content: bytes
    redirects: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hop:
    url: httpx2.URL
    request: Next
    content: bytes | None


async def exchange(request: Request, headers: Mapping[str, str], *, network: Network, trust: ssl.SSLContext) -> Answer:
    """Ask; `headers` are the worker's own and yield to the request's."""
    hop = _first_hop(request, headers)
    # Nothing is kept open from one hop to the next, so that each one is resolved and judged again.
    async with httpcore2.AsyncConnectionPool(
        ssl_context=trust, network_backend=network, max_connections=1, max_keepalive_connections=0, http2=False
    ) as pool:
        for redirects in range(REDIRECTS_MAX + 1):
            answer = await _send(pool, hop, redirects=redirects)
            location = answer.headers.get("location")
            if not request.follow_redirects or answer.status not in REDIRECTS or location is None:
                return answer
            hop = _next_hop(hop, answer.status, location)
    raise Undecodable(f"the answer was a redirect more than {REDIRECTS_MAX} times")


def _first_hop(request: Request, own: Mapping[str, str]) -> _Hop:
    url = parse_url(request.url)
    if request.query:
        url = url.copy_merge_params(httpx2.QueryParams(urlencode(_pairs(request.query))))
    content, kind = _content(request)
    headers = {name.lower(): value for name, value in own.items()}
    if kind is not None:
        headers["content-type"] = kind
    headers |= {name.lower(): value for name, value in request.headers.items()}
    if request.authorization is not None:
        headers["authorization"] = request.authorization
    sent = Next(method=request.method.upper(), headers=headers, with_body=content is not None)
    return _Hop(url=url, request=sent, content=content)


def parse_url(text: str) -> httpx2.URL:
    """An address that can be asked; raises BadRequest, or Refused for what is no web address at all."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError) as error:
        raise BadRequest(f"url is no address: {error}") from None
    if url.scheme not in _PORTS:
        raise Refused(f"only http and https are asked, not {url.scheme or 'an address without a scheme'!r}")
    if url.userinfo:
        raise Refused("the address holds a user or password; put credentials into a header")
    if not _HOST.fullmatch(url.raw_host.decode("ascii", errors="replace")):
        raise BadRequest("url names no host that could be asked")
    if url.port is not None and not 1 <= url.port <= _PORT_MAX:
        raise BadRequest(f"url names a port that does not exist: {url.port}")
    return url


def _content(request: Request) -> tuple[bytes | None, str | None]:
    if request.json is not msgspec.UNSET:
        return msgspec.json.encode(request.json), "application/json"
    if request.form is not None:
        return urlencode(_pairs(request.form)).encode(), "application/x-www-form-urlencoded"
    if request.body is not None:
        return request.body.encode(), "text/plain; charset=utf-8"
    return None, None


def _pairs(mapping: Mapping[str, Json]) -> list[tuple[str, str]]:
    lists = ((name, value if isinstance(value, list) else [value]) for name, value in mapping.items())
    return [(name, _text(value)) for name, values in lists for value in values]


def _text(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def _send(pool: httpcore2.AsyncConnectionPool, hop: _Hop, *, redirects: int) -> Answer:
    scheme, host, port, path = hop.url.raw_scheme, hop.url.raw_host, hop.url.port, hop.url.raw_path
    try:
        async with pool.stream(
            hop.request.method,
            httpcore2.URL(scheme=scheme, host=host, port=port, target=path),
            headers=_headers_to_send(hop),
            content=hop.content if hop.request.with_body else None,
            extensions={"timeout": {"connect": CONNECT_SECONDS_MAX}},
        ) as response:
            headers = _headers(response)
            skips = hop.request.method == "HEAD" or response.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
            content = b"" if skips else await read_content(response.stream, headers.get("content-encoding", ""))  # type: ignore[arg-type]  # it is an asynchronous one
    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
        raise Unreachable(f"{hop.url.host} cannot be reached: {str(error) or 'no answer'}") from None
    except httpcore2.LocalProtocolError as error:
        raise BadRequest(str(error)) from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        again = may_help_again(hop.request.method, None)
        raise Broken(f"{hop.url.host} broke off: {str(error) or 'no answer'}", may_help_again=again) from None
    return Answer(
        status=response.status,
        url=str(hop.url),
        method=hop.request.method,
        headers=headers,
        content=content,
        redirects=redirects,
    )


def _headers_to_send(hop: _Hop) -> list[tuple[bytes | str, bytes | str]]:
    return [("host", hop.url.netloc), ("accept-encoding", ACCEPTED), *hop.request.headers.items()]


def _headers(response: httpcore2.Response) -> dict[str, str]:
    if sum(len(name) + len(value) for name, value in response.headers) > HEADERS_BYTES_MAX:
        raise Undecodable(f"the headers of the answer are larger than {HEADERS_BYTES_MAX} bytes")
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _next_hop(hop: _Hop, status: int, location: str) -> _Hop:
    try:
        url = parse_url(str(hop.url.join(location)))
    except (httpx2.InvalidURL, ValueError, BadRequest) as error:
        raise Undecodable(f"the answer redirects to what is no address: {error}") from None
    same_origin = _origin(url) == _origin(hop.url)
    request = follow(status, hop.request, same_origin=same_origin)
    if request.with_body and not same_origin:
        raise Refused(f"{hop.url.host} redirects to {url.host}, and a body is not sent on to another host")
    return replace(hop, url=url, request=request)


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or _PORTS[url.scheme]
