"""Workers: who runs actions, how they are doing, how many are wanted, and taking them out and back in."""

from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.pages import Page, make_page, read_cursor
from attune.api.schemas.workers import DrainAnswer, PoolScaling, ScalingAnswer, WorkerQuery
from attune.domain.availability.scaling import plan_fleet, plan_pool
from attune.domain.errors import NotFound
from attune.domain.permission import Scope, parse_permission
from attune.operations.workers.cordon_worker import cordon_worker, uncordon_worker
from attune.operations.workers.drain_worker import drain_worker
from attune.storage.availability import scaling_changes
from attune.storage.tx import Tx
from attune.storage.views import scaling, workers
from attune.storage.views.workers import WorkerView

READ: Final = parse_permission("workers:read")
CORDON: Final = parse_permission("workers:cordon")
DRAIN: Final = parse_permission("workers:drain")

# Of the changes of what is wanted, so many are shown.
CHANGES_MAX: Final = 20


async def list_workers(call: Call[WorkerQuery, NoBody]) -> Reply:
    query = call.query
    (after,) = read_cursor(query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        rows = await workers.list_page(tx, status=query.status, after=after, limit=query.limit + 1)
    return Reply(value=make_page(rows, limit=query.limit, place_of=lambda row: [row.id]))


async def get_worker(call: Call[NoQuery, NoBody]) -> Reply:
    async with call.services.parts.database.reading() as tx:
        return Reply(value=await _get(tx, call.path_id("worker_id")))


async def _get(tx: Tx, worker_id: int) -> WorkerView:
    worker = await workers.find(tx, worker_id)
    if worker is None:
        raise NotFound(f"worker {worker_id} does not exist")
    return worker


async def cordon(call: Call[NoQuery, NoBody]) -> Reply:
    worker_id = call.path_id("worker_id")
    async with call.services.parts.database.transaction() as tx:
        await cordon_worker(tx, worker_id, by=call.actor)
        return Reply(value=await _get(tx, worker_id))


async def uncordon(call: Call[NoQuery, NoBody]) -> Reply:
    worker_id = call.path_id("worker_id")
    async with call.services.parts.database.transaction() as tx:
        await uncordon_worker(tx, worker_id, by=call.actor)
        return Reply(value=await _get(tx, worker_id))


async def drain(call: Call[NoQuery, NoBody]) -> Reply:
    worker_id, database = call.path_id("worker_id"), call.services.parts.database
    handed_back = await drain_worker(database, worker_id, by=call.actor)
    async with database.reading() as tx:
        return Reply(value=DrainAnswer(worker=await _get(tx, worker_id), handed_back=handed_back))


async def get_scaling(call: Call[NoQuery, NoBody]) -> Reply:
    async with call.services.parts.database.reading() as tx:
        fleet = await scaling.read_fleet(tx)
        plans = [plan_pool(demand, fleet) for demand in await scaling.list_demand(tx)]
        changes = await scaling_changes.list_newest(tx, limit=CHANGES_MAX)
    answer = ScalingAnswer(
        workers=fleet.workers,
        capacity=fleet.capacity,
        wanted=plan_fleet(plans, fleet),
        pools=[PoolScaling.of(plan) for plan in plans],
        changes=changes,
    )
    return Reply(value=answer)


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
        path="/api/v1/workers/scaling",
        name="get_scaling",
        summary="How many workers are wanted, together and in each pool that is not idle, and how that changed lately.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=ScalingAnswer,
        respond=get_scaling,
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
    Endpoint(
        method=Method.POST,
        path="/api/v1/workers/{worker_id}/cordon",
        name="cordon_worker",
        summary="Place nothing more on a worker; what it has goes on.",
        permission=CORDON,
        scope=Scope.INSTALLATION,
        answer=WorkerView,
        also=(404,),
        respond=cordon,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/workers/{worker_id}/uncordon",
        name="uncordon_worker",
        summary="Let a cordoned or drained worker be given work again.",
        permission=CORDON,
        scope=Scope.INSTALLATION,
        answer=WorkerView,
        also=(404,),
        respond=uncordon,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/workers/{worker_id}/drain",
        name="drain_worker",
        summary="Cordon a worker and give what it has not started to others; what runs goes on.",
        permission=DRAIN,
        scope=Scope.INSTALLATION,
        answer=DrainAnswer,
        also=(404,),
        respond=drain,
    ),
)
