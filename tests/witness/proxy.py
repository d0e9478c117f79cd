"""A TCP proxy that misbehaves on request: cuts connections, swallows what passes, or delays it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

CHUNK_BYTES = 65536
AMQP_PORT = 5672


def everybody(_port: int) -> bool:
    """Whatever port a connection comes from."""
    return True


@dataclass(kw_only=True)
class Proxy:
    """Stands between a client and a server; every setting takes effect on connections that exist already."""

    host: str
    port: int
    listening_port: int = 0
    refuse: bool = False
    """New connections are closed at once."""
    swallow_to_server: bool = False
    swallow_to_client: bool = False
    """Bytes are taken and lost; nobody is told."""
    suffers: Callable[[int], bool] = everybody
    """Whose bytes are swallowed, by the port that the client's connection comes from."""
    once_said: bytes = b""
    """Of what a server answers, only that to a client who has said this is lost, and what follows it."""
    spoken: set[int] = field(default_factory=set)
    delay_seconds: float = 0.0
    connections: dict[asyncio.StreamWriter, int] = field(default_factory=dict)
    accepted: int = 0

    def cut(self, whose: Callable[[int], bool] = everybody) -> None:
        """Reset connections, as a failing network would."""
        for writer, port in tuple(self.connections.items()):
            if whose(port):
                writer.transport.abort()

    def black_hole(self, *, on: bool = True) -> None:
        """Swallow everything in both directions."""
        self.swallow_to_server = self.swallow_to_client = on

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refuse:
            writer.transport.abort()
            return
        try:
            server_reader, server_writer = await self._open()
        except OSError:
            writer.transport.abort()
            return
        port = int(writer.get_extra_info("peername")[1])
        ends = (writer, server_writer)
        self.connections |= dict.fromkeys(ends, port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(reader, server_writer, swallows=lambda said: self._to_server(port, said)))
                tasks.create_task(self._pump(server_reader, writer, swallows=lambda _: self._lost_to_client(port)))
        finally:
            for end in ends:
                del self.connections[end]
                end.transport.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self.host}/.s.PGSQL.{self.port}")
        return await asyncio.open_connection(self.host, self.port)

    def _to_server(self, port: int, said: bytes) -> bool:
        if self.once_said and self.once_said in said:
            self.spoken.add(port)
        return self.swallow_to_server and self.suffers(port)

    def _lost_to_client(self, port: int) -> bool:
        meant = not self.once_said or port in self.spoken
        return self.swallow_to_client and meant and self.suffers(port)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, swallows: Callable[[bytes], bool]
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(CHUNK_BYTES):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if not swallows(chunk):
                    writer.write(chunk)
                    await writer.drain()
        writer.transport.abort()

    def redirect(self, url: str) -> str:
        """The same address, through this proxy."""
        parts = urlsplit(url)
        credentials = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{credentials}@127.0.0.1:{self.listening_port}", query=""))


@asynccontextmanager
async def proxy_before(url: str) -> AsyncIterator[Proxy]:
    """A proxy in front of the server at this address: AMQP, or PostgreSQL by TCP or by a socket directory."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    host = unquote(query["host"][0]) if "host" in query else parts.hostname or "127.0.0.1"
    port = int(query["port"][0]) if "port" in query else parts.port or AMQP_PORT
    proxy = Proxy(host=host, port=port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.listening_port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.refuse = True
        while proxy.connections:
            proxy.cut()
            await asyncio.sleep(0)
