"""Sends calls over HTTP, for synchronous and for asynchronous programs; everything else is shared."""

import ipaddress
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, Self, TypedDict, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from attune.client.answers import Answer, read_answer
from attune.client.calls import Call
from attune.client.errors import ClientError, TimedOut, Unreachable
from attune.client.events import Event, read_events

T = TypeVar("T")

CONNECT_SECONDS_MAX: Final = 5.0
ANSWER_SECONDS_MAX: Final = 30.0


class _Options(TypedDict):
    base_url: str
    headers: dict[str, str]
    follow_redirects: bool
    trust_env: bool


class _Request(TypedDict):
    method: str
    url: str
    params: Mapping[str, str | int | float]
    content: bytes | None
    headers: dict[str, str]
    timeout: httpx2.Timeout


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine itself, where no proxy belongs and the home's own token may go."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AttuneClient:
    """Sends calls and waits for their answers."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.Client(**_options(self.url, token))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> Answer[T]:
        try:
            response = self._http.request(**_request(call))
        except httpx2.HTTPError as error:
            raise _failure(self.url, call, error) from error
        return read_answer(call, url=self.url, status=response.status_code, body=response.content)

    def read(self, call: Call[bytes], *, silence_seconds: float = ANSWER_SECONDS_MAX) -> Iterator[bytes]:
        """The answer's content as it comes, in pieces of any size."""
        wanted = _request(call)
        wanted["timeout"] = httpx2.Timeout(silence_seconds, connect=CONNECT_SECONDS_MAX)
        try:
            with self._http.stream(**wanted) as response:
                if response.is_error:
                    read_answer(call, url=self.url, status=response.status_code, body=response.read())
                yield from response.iter_bytes()
        except httpx2.HTTPError as error:
            raise _failure(self.url, call, error) from error

    def follow(self, call: Call[bytes], *, silence_seconds: float) -> Iterator[Event]:
        """Events as they come, until the server ends them."""
        return read_events(self.read(call, silence_seconds=silence_seconds))


class AsyncAttuneClient:
    """The same for programs with an event loop."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(**_options(self.url, token))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> Answer[T]:
        try:
            response = await self._http.request(**_request(call))
        except httpx2.HTTPError as error:
            raise _failure(self.url, call, error) from error
        return read_answer(call, url=self.url, status=response.status_code, body=response.content)


def _options(url: str, token: str | None) -> _Options:
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    # A redirect is not followed: it could carry the token to another host.
    return {"base_url": url, "headers": headers, "follow_redirects": False, "trust_env": not is_loopback(url)}


def _request(call: Call[T]) -> _Request:
    headers = dict(call.headers)
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": call.method,
        "url": call.path,
        "params": call.query,
        "content": None if call.body is None else msgspec.json.encode(call.body),
        "headers": headers,
        "timeout": httpx2.Timeout(ANSWER_SECONDS_MAX + call.patience_seconds, connect=CONNECT_SECONDS_MAX),
    }


def _failure(url: str, call: Call[T], error: httpx2.HTTPError) -> ClientError:
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Unreachable(f"nothing answers at {url} ({error}); is Attune running there?")
    if isinstance(error, httpx2.TimeoutException):
        return TimedOut(f"{url} took too long to answer {call.method} {call.path}")
    return Unreachable(f"the connection to {url} broke during {call.method} {call.path}: {error}")
