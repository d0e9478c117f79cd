"""The only way out for requests: a name is resolved once, every answer is judged, and only those are connected to.

It sits below the HTTP client, so that whatever notation, redirect or new name leads to a connection, it passes here.
The client above goes on to speak of the name, in the Host header and to TLS.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

import httpcore2

from attune.domain.http.addresses import Address
from attune.domain.http.allowed import Allowed, check_destination, check_name

# Names that hang must not take the threads that other parts of the worker need.
RESOLVING_MAX: Final = 8
# One address that does not answer must leave time for the next.
CONNECT_SECONDS_MAX: Final = 10.0
ADDRESSES_MAX: Final = 16

Resolve = Callable[[str, int], Awaitable[Sequence[Address]]]


class Unreachable(Exception):
    """Nobody was reached, so nothing was sent."""


class Network(httpcore2.AsyncNetworkBackend):
    """Connects to what may be asked, and raises Refused for the rest."""

    def __init__(self, *, resolve: Resolve, allow: Sequence[Allowed]) -> None:
        self._resolve = resolve
        self._allow = allow
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(  # type: ignore[override]  # whoever calls it names all but the first two
        self,
        host: str,
        port: int,
        *,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        check_name(host)
        addresses = await self._resolve(host, port)
        check_destination(host, port, addresses, allow=self._allow)
        problem = "it has no address"
        for address in addresses[:ADDRESSES_MAX]:
            try:
                return await self._sockets.connect_tcp(
                    str(address), port, timeout=timeout, local_address=local_address, socket_options=socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = _say(error)
        raise Unreachable(f"{host} port {port} cannot be reached: {problem}")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def _say(error: Exception) -> str:
    if isinstance(error, httpcore2.ConnectTimeout):
        return f"no answer within {CONNECT_SECONDS_MAX:g} s"
    cause = error.__cause__ or error
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or "the connection was refused"


def system_resolver() -> Resolve:
    """Asks the system, as every other program on this machine would."""
    threads = ThreadPoolExecutor(max_workers=RESOLVING_MAX, thread_name_prefix="resolve")

    async def resolve(host: str, port: int) -> Sequence[Address]:
        look_up = asyncio.get_running_loop().run_in_executor(threads, _look_up, host, port)
        try:
            return await look_up
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise Unreachable(f"{host} cannot be resolved: {reason}") from None

    return resolve


def _look_up(host: str, port: int) -> list[Address]:
    # A dot after a number belongs to the address and would otherwise be asked of a name server.
    plain = host.rstrip(".") if host.rstrip(".")[-1:].isdecimal() else host
    found = socket.getaddrinfo(plain, port, type=socket.SOCK_STREAM)
    # Keeps the system's order of preference; a zone stays, because a connection needs it.
    return list(dict.fromkeys(ip_address(place[0]) for *_, place in found if isinstance(place[0], str)))


def default_trust() -> ssl.SSLContext:
    """Certificates are checked against the machine's own authorities, always."""
    return httpcore2.default_ssl_context()
