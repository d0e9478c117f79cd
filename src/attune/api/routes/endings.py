"""Executions that are to end: stopping them, and what was reported after their end."""

from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.schemas.executions import CancelQuery
from attune.domain.errors import NotFound
from attune.domain.permission import Permission, Scope, parse_permission
from attune.operations.access.write_audit import Deed, write_audit
from attune.operations.cancel_execution import cancel_execution
from attune.storage.tx import Tx
from attune.storage.views import executions
from attune.storage.views.executions import ExecutionView, LateResult

READ: Final = parse_permission("executions:read")
CANCEL: Final = parse_permission("executions:cancel")
FORCE: Final = parse_permission("executions:force_cancel")


async def list_late_results(call: Call[NoQuery, NoBody]) -> Reply:
    execution_id = call.path_id("execution_id")
    async with call.services.parts.database.reading() as tx:
        await _get(tx, execution_id)
        return Reply(value=await executions.list_late_results(tx, execution_id))


async def cancel(call: Call[CancelQuery, NoBody]) -> Reply:
    execution_id, force = call.path_id("execution_id"), call.query.force
    if force:
        call.caller.must_have(FORCE)
    deed = Deed(
        operation="execution.cancel", resource=f"execution/{execution_id}", by=call.actor, detail={"force": force}
    )
    async with call.services.parts.database.transaction() as tx:
        await cancel_execution(tx, execution_id, actor=call.caller.login, force=force)
        await write_audit(tx, [deed])
        return Reply(value=await _get(tx, execution_id), status=202)


async def _get(tx: Tx, execution_id: int) -> ExecutionView:
    view = await executions.find(tx, execution_id)
    if view is None:
        raise NotFound(f"execution {execution_id} does not exist")
    return view


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions/{execution_id}/late-results",
        name="list_late_results",
        summary="What attempts reported after they had been given up; none of it was applied.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=list[LateResult],
        also=(404,),
        respond=list_late_results,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/executions/{execution_id}/cancel",
        name="cancel_execution",
        summary="Stop an execution and its children; with `force` its end does not wait for its worker.",
        permission=CANCEL,
        scope=Scope.INSTALLATION,
        query=CancelQuery,
        answer=ExecutionView,
        status=202,
        also=(404,),
        respond=cancel,
    ),
)
# Rights that a route asks for beyond its own, depending on what is sent.
FURTHER_PERMISSIONS: Final[tuple[Permission, ...]] = (FORCE,)
