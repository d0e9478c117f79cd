"""Asks the API, over HTTP, whether the platform is ready to work."""

import asyncio
import http.client
from typing import Final
from urllib.parse import urlsplit

import msgspec

ANSWER_SECONDS_MAX: Final = 3.0
BODY_BYTES_MAX: Final = 1024 * 1024


class _Worker(msgspec.Struct):
    status: str = ""


class _Workers(msgspec.Struct):
    items: list[_Worker] = []


class _Scaling(msgspec.Struct):
    wanted: int


async def is_ready(url: str) -> bool:
    """Whether `/readyz` answers 200."""
    return (await asyncio.to_thread(_get, url, "/readyz", None))[0] == http.client.OK


async def why_not_ready(url: str) -> str:
    """What `/readyz` says, in one line."""
    status, body = await asyncio.to_thread(_get, url, "/readyz", None)
    if status == 0:
        return "the API does not answer"
    return f"/readyz answers {status}: {body[:500].decode(errors='replace').strip()}"


async def wanted_workers(url: str, token: str) -> int | None:
    """How many workers the platform wants; None if it does not say."""
    status, body = await asyncio.to_thread(_get, url, "/api/v1/workers/scaling", token)
    if status != http.client.OK:
        return None
    try:
        return msgspec.json.decode(body, type=_Scaling).wanted
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


async def has_active_worker(url: str, token: str) -> bool:
    """Whether at least one worker is there to take work."""
    status, body = await asyncio.to_thread(_get, url, "/api/v1/workers?status=active&limit=1", token)
    if status != http.client.OK:
        return False
    try:
        workers = msgspec.json.decode(body, type=_Workers)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return False
    return any(worker.status == "active" for worker in workers.items)


def _get(url: str, path: str, token: str | None) -> tuple[int, bytes]:
    """One request without the weight of a client library; status 0 if nothing answers."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read(BODY_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
