"""A real server on loopback that answers as each test asks, over plain connections and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from attune.domain.http.addresses import Address

Answer = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(kw_only=True)
class Server:
    """Answers by path; remembers what it was asked."""

    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)

    def url(self, path: str = "/", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def answer(self, path: str, content: bytes = b"", *, status: str = "200 OK", **headers: str) -> None:
        """Underscores stand for the dashes of header names."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.answer_raw(path, "\r\n".join([*lines, "", ""]).encode() + content)

    def answer_raw(self, path: str, content: bytes) -> None:
        async def write(_: Asked, writer: asyncio.StreamWriter) -> None:
            writer.write(content)
            await writer.drain()

        self.answers[path] = write

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await read_request(reader)
            self.asked.append(asked)
            await self.answers[asked.path.partition("?")[0]](asked, writer)
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass  # The other side went first.
        finally:
            writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> Asked:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method=method, path=path, headers=headers, body=body)


@contextlib.asynccontextmanager
async def serving(trust: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=trust)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as made:
        yield made


@dataclass(frozen=True, kw_only=True)
class Secured:
    server: Server
    # Knows the server's certificate; nobody else does.
    trust: ssl.SSLContext


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    """A server whose certificate is for api.example."""
    certificate = write_certificate(tmp_path, "api.example")
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate)
    async with serving(own) as server:
        own.sni_callback = lambda _socket, name, _context: server.names.append(name)
        yield Secured(server=server, trust=ssl.create_default_context(cafile=str(certificate)))


def write_certificate(folder: Path, name: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


class Names:
    """A resolver that answers what a test says, one list after the other; the last one stays."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): list(lists) for name, lists in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[Address]:
        self.asked.append(host)
        lists = self._answers[host]
        found = lists.pop(0) if len(lists) > 1 else lists[0]
        return [ip_address(text) for text in found]
