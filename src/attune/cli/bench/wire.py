"""A client that costs little: what is measured shares the machine with it.

The usual client needs about a millisecond for a request, more than the API does. This one knows just what a measurement
sends: short requests over kept connections, answered with a length.
"""

import asyncio
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from attune.client import Unreachable
from attune.client.answers import Answer, read_answer
from attune.client.calls import Call

T = TypeVar("T")

ANSWER_SECONDS_MAX: Final = 60.0
_LENGTH: Final = b"content-length:"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WireClient:
    """Sends calls; as many at once as are asked for, each over a connection of its own while it lasts."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url
        place = urlsplit(url)
        self._host, self._port = place.hostname or "", place.port or 80
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        self._headers = f"Host: {place.netloc}\r\n{bearer}Accept: application/json\r\n"
        self._idle: list[Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, writer in self._idle:
            writer.close()

    async def send(self, call: Call[T]) -> Answer[T]:
        """The answer; a connection that breaks is not used again."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX + call.patience_seconds):
                reader, writer = connection = await self._connect()
                try:
                    writer.write(self._words(call))
                    status, body = await _read(reader)
                except BaseException:
                    writer.close()
                    raise
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            message = f"the connection to {self.url} broke during {call.method} {call.path}: {error}"
            raise Unreachable(message) from error
        self._idle.append(connection)
        return read_answer(call, url=self.url, status=status, body=body)

    async def _connect(self) -> Connection:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port)

    def _words(self, call: Call[T]) -> bytes:
        content = b"" if call.body is None else msgspec.json.encode(call.body)
        target = f"{call.path}?{urlencode(call.query)}" if call.query else call.path
        more = "".join(f"{name}: {value}\r\n" for name, value in call.headers.items())
        if call.body is not None:
            more += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        return f"{call.method} {target} HTTP/1.1\r\n{self._headers}{more}\r\n".encode() + content


async def _read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    lengths = [int(line[len(_LENGTH) :]) for line in headers if line.lower().startswith(_LENGTH)]
    if len(lengths) != 1:
        raise ValueError("an answer without a length")
    return int(first.split(b" ", 2)[1]), await reader.readexactly(lengths[0])
