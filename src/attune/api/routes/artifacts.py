"""Results that are too large for their execution: what there is, and its content."""

import re
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.errors import BadRequest
from attune.api.pages import Page, make_page, read_cursor
from attune.api.schemas.executions import ArtifactQuery
from attune.api.sight import sees_execution
from attune.domain.errors import FieldError, NotFound
from attune.domain.permission import Scope, parse_permission
from attune.storage.database import Database
from attune.storage.output.artifacts import PIECE_BYTES
from attune.storage.views import artifacts
from attune.storage.views.artifacts import ArtifactView

READ: Final = parse_permission("artifacts:read")
_RANGE: Final = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")


async def list_artifacts(call: Call[ArtifactQuery, NoBody]) -> Reply:
    (after,) = read_cursor(call.query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        found = await artifacts.list_page(
            tx,
            execution_id=call.query.execution_id,
            of_family=call.caller.execution,
            after=after,
            limit=call.query.limit + 1,
        )
    return Reply(value=make_page(found, limit=call.query.limit, place_of=lambda view: [view.id]))


async def get_artifact(call: Call[NoQuery, NoBody]) -> Reply:
    return Reply(value=await _get(call))


async def get_artifact_content(call: Call[NoQuery, NoBody]) -> Reply:
    view = await _get(call)
    first, last, status = _read_range(call.request.headers.get("range"), view.bytes)
    headers = {
        "Content-Length": str(last - first + 1),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(view.name, safe='')}",
        "Accept-Ranges": "bytes",
        "ETag": f'"{view.sha256}"',
    }
    if status == _PARTIAL:
        headers["Content-Range"] = f"bytes {first}-{last}/{view.bytes}"
    content = _read(call.services.parts.database, view.id, first, last)
    return Reply(stream=content, status=status, media_type=view.media_type, headers=headers)


_WHOLE: Final = 200
_PARTIAL: Final = 206


def _read_range(sent: str | None, size: int) -> tuple[int, int, int]:
    """The first and the last byte that are asked for, and the status of that answer."""
    if sent is None:
        return 0, size - 1, _WHOLE
    match = _RANGE.fullmatch(sent)
    first, last = (int(match[1]), int(match[2] or size - 1)) if match else (0, -1)
    if match is None or first >= size or last < first:
        message = f"only one range within {size} bytes is understood: bytes=FIRST-LAST"
        raise BadRequest(message, code="bad_header", fields=[FieldError(pointer="", message=message)])
    return first, min(last, size - 1), _PARTIAL


async def _read(database: Database, artifact_id: int, first: int, last: int) -> AsyncIterator[bytes]:
    """One piece at a time, and no connection is held while a slow reader takes it."""
    for n in range(first // PIECE_BYTES, last // PIECE_BYTES + 1):
        async with database.reading() as tx:
            piece = await artifacts.find_piece(tx, artifact_id, n)
        if piece is None:
            # The answer has begun, so breaking it off is the only way to say that it is not whole.
            raise ConnectionAbortedError(f"artifact {artifact_id} was removed while it was read")
        begin = n * PIECE_BYTES
        yield piece[max(0, first - begin) : last + 1 - begin]


async def _get(call: Call[NoQuery, NoBody]) -> ArtifactView:
    artifact_id = call.path_id("artifact_id")
    async with call.services.parts.database.reading() as tx:
        view = await artifacts.find(tx, artifact_id)
        if view is None or not await sees_execution(tx, call.caller, view.execution_id):
            raise NotFound(f"artifact {artifact_id} does not exist")
    return view


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/artifacts",
        name="list_artifacts",
        summary="Results that are too large for their execution, of one or of all.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=ArtifactQuery,
        answer=Page[ArtifactView],
        for_attempts=True,
        respond=list_artifacts,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/artifacts/{artifact_id}",
        name="get_artifact",
        summary="One artifact, without its content.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=ArtifactView,
        also=(404,),
        for_attempts=True,
        respond=get_artifact,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/artifacts/{artifact_id}/content",
        name="get_artifact_content",
        summary="Its content, or one range of it.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=None,
        media_type="application/octet-stream",
        also=(206, 404),
        for_attempts=True,
        respond=get_artifact_content,
    ),
)
