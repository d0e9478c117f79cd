"""What a runtime needs around its machine: a server to ask, or a program that its actions run with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.http.conftest import Asked, serving
from tests.witness.node import brought_node
from tests.witness.podman import a_podman

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """`variables` are the worker's own, `settings` changes to its plan; `origin` is where the server listens."""

    variables: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    origin: str = ""


@asynccontextmanager
async def nothing() -> AsyncIterator[Surroundings]:
    yield Surroundings()


@asynccontextmanager
async def node() -> AsyncIterator[Surroundings]:
    yield Surroundings(settings={"node": await brought_node()})


@asynccontextmanager
async def containers() -> AsyncIterator[Surroundings]:
    async with a_podman() as podman:
        yield Surroundings(variables=podman.environment)


@asynccontextmanager
async def server() -> AsyncIterator[Surroundings]:
    async def never(_: Asked, writer: asyncio.StreamWriter) -> None:
        await writer.wait_closed()

    async def echo(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(asked.body) + asked.body)
        await writer.drain()

    async with serving() as made:
        made.answer("/success", b'{"n": 1}', Content_Type="application/json")
        made.answer("/failure", status="500 Internal Server Error")
        made.answer("/oversized", b"x" * 2 * MEBIBYTE)
        made.answer("/huge", os.urandom(20) * MEBIBYTE)
        made.answer("/bytes", b"a\xffb")
        made.answers |= {"/endless": never, "/echo": echo}
        yield Surroundings(origin=made.url(""))
