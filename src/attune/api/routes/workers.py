"""Workers: who runs actions, and how they are doing."""

from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.pages import Page, make_page, read_cursor
from attune.api.schemas.workers import WorkerQuery
from attune.domain.errors import NotFound
from attune.domain.permission import Scope, parse_permission
from attune.storage.views import workers
from attune.storage.views.workers import WorkerView

READ: Final = parse_permission("workers:read")


async def list_workers(call: Call[WorkerQuery, NoBody]) -> Reply:
    query = call.query
    (after,) = read_cursor(query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        rows = await workers.list_page(tx, status=query.status, after=after, limit=query.limit + 1)
    return Reply(value=make_page(rows, limit=query.limit, place_of=lambda row: [row.id]))


async def get_worker(call: Call[NoQuery, NoBody]) -> Reply:
    worker_id = call.path_id("worker_id")
    async with call.services.parts.database.reading() as tx:
        worker = await workers.find(tx, worker_id)
    if worker is None:
        raise NotFound(f"worker {worker_id} does not exist")
    return Reply(value=worker)


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/workers",
        name="list_workers",
        summary="Workers, alive or not.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=WorkerQuery,
        answer=Page[WorkerView],
        respond=list_workers,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/workers/{worker_id}",
        name="get_worker",
        summary="One worker.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=WorkerView,
        also=(404,),
        respond=get_worker,
    ),
)
