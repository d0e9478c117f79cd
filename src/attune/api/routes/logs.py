"""What executions print: page by page, or as it comes."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, Reply
from attune.api.errors import BadRequest
from attune.api.pages import Page, make_page, read_cursor
from attune.api.schemas.executions import LogLine, LogQuery, LogStreamQuery
from attune.domain.errors import AttuneError, FieldError, NotFound
from attune.domain.execution import TERMINAL, Status
from attune.domain.permission import Scope, parse_permission
from attune.storage.database import may_work_later
from attune.storage.views import execution_logs, executions
from attune.storage.views.execution_logs import LogChunk

READ: Final = parse_permission("executions:read")
# An open stream says this often that it is there, and asks whether its reader may still read.
HEARTBEAT_SECONDS: Final = 15.0
# A reader that is slower than the action makes its stream wait here, with at most this many pieces in memory.
PIECES_MAX: Final = 16
_PLACE: Final = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


async def list_execution_logs(call: Call[LogQuery, NoBody]) -> Reply:
    query, execution_id = call.query, call.path_id("execution_id")
    attempt, seq = read_cursor(query.cursor, (-1, -1))
    async with call.services.parts.database.reading() as tx:
        if await executions.find_status(tx, execution_id) is None:
            raise NotFound(f"execution {execution_id} does not exist")
        chunks = await execution_logs.list_chunks(
            tx, execution_id, attempt=query.attempt, stream=query.stream, after=(attempt, seq), limit=query.limit + 1
        )
    page = make_page(chunks, limit=query.limit, place_of=lambda chunk: [chunk.attempt, chunk.seq])
    return Reply(value=Page(items=[_log_line(chunk) for chunk in page.items], next_cursor=page.next_cursor))


async def stream_execution_logs(call: Call[LogStreamQuery, NoBody]) -> Reply:
    execution_id = call.path_id("execution_id")
    after = _read_place(call.request.headers.get("last-event-id"))
    async with call.services.parts.database.reading() as tx:
        if await executions.find_status(tx, execution_id) is None:
            raise NotFound(f"execution {execution_id} does not exist")
    # Asks proxies not to collect events before they hand them on.
    headers = {"X-Accel-Buffering": "no"}
    return Reply(stream=_follow(call, execution_id, after), media_type="text/event-stream", headers=headers)


def _read_place(sent: str | None) -> tuple[int, int]:
    """Where a reader was before, as the id of the last event it saw."""
    if sent is None:
        return (-1, -1)
    match = _PLACE.fullmatch(sent)
    if match is None:
        message = "Last-Event-ID is not the id of an event of this stream"
        raise BadRequest(message, code="bad_header", fields=[FieldError(pointer="", message=message)])
    return int(match[1]), int(match[2])


async def _follow(
    call: Call[LogStreamQuery, NoBody], execution_id: int, after: tuple[int, int]
) -> AsyncIterator[bytes]:
    """Everything after a place, then whatever is written, until the execution has ended."""
    following = call.services.following
    with following.follow(execution_id) as more:
        yield b"retry: 1000\n\n"
        while not following.closed:
            more.clear()
            try:
                status, chunks = await _read(call, execution_id, after)
            except Exception as error:
                if may_work_later(error):
                    return  # The reader comes back and goes on where it was.
                raise
            for chunk in chunks:
                after = (chunk.attempt, chunk.seq)
                yield _event("log", _log_line(chunk), place=after)
            if len(chunks) == PIECES_MAX:
                continue
            if status is None or Status(status) in TERMINAL:
                yield _event("end", {"status": status})
                return
            if not await _wait(more):
                if not await _may_stay(call):
                    return
                yield b": waiting\n\n"


async def _read(
    call: Call[LogStreamQuery, NoBody], execution_id: int, after: tuple[int, int]
) -> tuple[str | None, list[LogChunk]]:
    """The status before the pieces: what an ended execution printed is all there."""
    async with call.services.parts.database.reading() as tx:
        status = await executions.find_status(tx, execution_id)
        chunks = await execution_logs.list_chunks(
            tx, execution_id, attempt=None, stream=call.query.stream, after=after, limit=PIECES_MAX
        )
    return status, chunks


async def _wait(more: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            return await more.wait()
    except TimeoutError:
        return False


async def _may_stay(call: Call[LogStreamQuery, NoBody]) -> bool:
    try:
        return (await call.services.authenticator.identify(call.request)).may(READ)
    except AttuneError:
        return False


def _event(name: str, value: object, *, place: tuple[int, int] | None = None) -> bytes:
    # JSON of msgspec is one line, whatever the text holds.
    told = b"" if place is None else b"id: %d-%d\n" % place
    return told + b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(value))


def _log_line(chunk: LogChunk) -> LogLine:
    return LogLine(id=chunk.seq, attempt=chunk.attempt, stream=chunk.stream, text=chunk.content, at=chunk.at)


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions/{execution_id}/logs",
        name="list_execution_logs",
        summary="What an execution wrote, in the order it was read.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=LogQuery,
        answer=Page[LogLine],
        also=(404,),
        for_attempts=True,
        respond=list_execution_logs,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions/{execution_id}/logs/stream",
        name="stream_execution_logs",
        summary="The same as it comes, as server-sent events; `Last-Event-ID` goes on after that event.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=LogStreamQuery,
        answer=None,
        media_type="text/event-stream",
        also=(404,),
        for_attempts=True,
        respond=stream_execution_logs,
    ),
)
