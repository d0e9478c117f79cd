"""Executions: asking for them, looking at them."""

import re
from collections.abc import Sequence
from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.errors import BadRequest
from attune.api.pages import ID_MAX, Page, PageQuery, make_page, read_cursor
from attune.api.schemas.executions import (
    AcceptedExecution,
    BatchAnswer,
    BatchRequest,
    ExecutionQuery,
    ExecutionRequest,
    MoveAnswer,
    WaitQuery,
)
from attune.domain.errors import AttuneError, FieldError, Invalid, NotFound
from attune.domain.execution import TERMINAL, Status
from attune.domain.idempotency import Claim, KeyName, repeat_answer
from attune.domain.permission import Permission, Scope, parse_permission
from attune.operations.acceptance import Acceptance, Request, Submission, Wish, read_acceptance
from attune.storage.access import idempotency_keys
from attune.storage.births import NewExecution
from attune.storage.views import executions
from attune.storage.views.executions import ExecutionFilter, ExecutionView, LinePlace

READ: Final = parse_permission("executions:read")
CREATE: Final = parse_permission("executions:create")
PIN: Final = parse_permission("executions:pin")
PRIORITISE: Final = parse_permission("executions:prioritise")

_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")


async def create_execution(call: Call[WaitQuery, ExecutionRequest]) -> Reply:
    _check_rights(call, [call.body])
    call.services.pressure.refuse_if_high()
    claim = _read_claim(call, "create_execution")
    accepted = await _find_repeated(call, claim)
    if accepted is None:
        (new,) = await _prepare(call, [call.body])
        accepted = await call.services.door.accept(Submission(prepared=(new,), by=call.actor, claim=claim))
        if accepted.first is not None and not call.query.wait:
            return Reply(value=_accepted_view(accepted, new), status=202)
    return await _show_when_ended(call, accepted.ids[0])


async def _show_when_ended(call: Call[WaitQuery, ExecutionRequest], execution_id: int) -> Reply:
    seconds = min(call.query.wait, call.services.parts.limits.wait_max_seconds)
    await call.services.completions.wait(execution_id, seconds)
    view = await _get(call, execution_id)
    return Reply(value=view, status=200 if call.query.wait and Status(view.status) in TERMINAL else 202)


def _accepted_view(accepted: Acceptance, new: NewExecution) -> ExecutionView:
    """The new row as reading it would show it, without reading it."""
    row = accepted.first
    if row is None:
        raise ValueError("a repeated request has no new row")
    return ExecutionView(
        id=accepted.ids[0],
        action_ref=new.action_ref,
        status=row.status,
        attempt=0,
        tries=0,
        parameters=dict(new.parameters),
        result=None,
        error=row.error,
        worker=new.pinned_to,
        executor=None,
        line=None if row.line_id is None else LinePlace(id=row.line_id, seq=row.line_seq),
        trace_tag=new.trace_tag,
        created=row.created,
        queued_at=row.created if row.status == Status.QUEUED else None,
        scheduled_at=None,
        started_at=None,
        ended_at=row.created if row.error else None,
        parent=new.parent,
        enforcement=None,
        inherits_slot_of=None,
    )


async def create_executions(call: Call[NoQuery, BatchRequest]) -> Reply:
    wanted = call.body.executions
    _check_rights(call, wanted)
    call.services.pressure.refuse_if_high()
    claim = _read_claim(call, "create_executions")
    accepted = await _find_repeated(call, claim)
    if accepted is None:
        prepared = await _prepare_batch(call, wanted)
        accepted = await call.services.door.accept(Submission(prepared=tuple(prepared), by=call.actor, claim=claim))
    answer = BatchAnswer(executions=[AcceptedExecution(id=execution_id) for execution_id in accepted.ids])
    return Reply(value=answer, status=202)


def _check_rights(
    call: Call[WaitQuery, ExecutionRequest] | Call[NoQuery, BatchRequest], wanted: Sequence[ExecutionRequest]
) -> None:
    if any(each.worker_id is not None for each in wanted):
        call.caller.must_have(PIN)
    if any(each.priority != 0 for each in wanted):
        call.caller.must_have(PRIORITISE)


def _read_claim(call: Call[WaitQuery, ExecutionRequest] | Call[NoQuery, BatchRequest], route: str) -> Claim | None:
    key = call.request.headers.get("idempotency-key")
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        raise BadRequest("an Idempotency-Key is 1 to 200 printable characters without spaces", code="bad_header")
    if call.caller.execution is not None:
        route = f"{route} by execution {call.caller.execution}"  # Its keys are not those of whoever asked for it.
    name = KeyName(identity=call.caller.identity, route=route, key=key)
    return Claim(name=name, body_hash=call.services.parts.vault.digest(call.raw_body))


async def _find_repeated(
    call: Call[WaitQuery, ExecutionRequest] | Call[NoQuery, BatchRequest], claim: Claim | None
) -> Acceptance | None:
    """The answer of an earlier request, also if it could not be made any more today."""
    if claim is None:
        return None
    async with call.services.parts.database.reading() as tx:
        answered = await idempotency_keys.find_many(tx, [claim.name])
    found = answered.get(claim.name)
    return None if found is None else read_acceptance(repeat_answer(claim, found))


async def _prepare(
    call: Call[WaitQuery, ExecutionRequest] | Call[NoQuery, BatchRequest], wanted: Sequence[ExecutionRequest]
) -> list[NewExecution]:
    requests = [_request(each, parent=call.caller.execution) for each in wanted]
    caller = call.caller
    wish = Wish(requests=requests, identity=caller.identity or None, requested_by=caller.login)
    return await call.services.preparer.prepare(wish)


async def _prepare_batch(call: Call[NoQuery, BatchRequest], wanted: Sequence[ExecutionRequest]) -> list[NewExecution]:
    try:
        return await _prepare(call, wanted)
    except AttuneError as error:
        if len(wanted) > 1 or not isinstance(error, Invalid):
            raise
        # A batch of one is still a batch: its pointers begin at the list.
        fields = [FieldError(pointer=f"/executions/0{each.pointer}", message=each.message) for each in error.fields]
        raise type(error)(error.message, code=error.code, fields=fields) from error


def _request(wanted: ExecutionRequest, *, parent: int | None) -> Request:
    return Request(
        action_ref=wanted.action_ref,
        parameters=wanted.parameters,
        priority=wanted.priority,
        trace_tag=wanted.trace_tag,
        not_before=wanted.not_before,
        worker_id=wanted.worker_id,
        worker_queue_ttl_seconds=wanted.worker_queue_ttl_seconds,
        parent=parent,
    )


async def list_executions(call: Call[ExecutionQuery, NoBody]) -> Reply:
    query = call.query
    status = query.status.value if query.status else None
    wanted = ExecutionFilter(action_ref=query.action_ref, status=status, trace_tag=query.trace_tag)
    live = query.status is not None and query.status not in TERMINAL
    async with call.services.parts.database.reading() as tx:
        if query.sort == "-id":
            (before,) = read_cursor(query.cursor, (ID_MAX,))
            find_newest = (
                executions.list_newest_traced_ids
                if query.trace_tag is not None
                else executions.list_newest_live_ids
                if live
                else executions.list_newest_ids
            )
            ids = await find_newest(tx, wanted, before=before, limit=query.limit + 1)
        else:
            (after,) = read_cursor(query.cursor, (0,))
            find_oldest = (
                executions.list_oldest_traced_ids
                if query.trace_tag is not None
                else executions.list_oldest_live_ids
                if live
                else executions.list_oldest_ids
            )
            ids = await find_oldest(tx, wanted, after=after, limit=query.limit + 1)
        return Reply(value=_page(await executions.list_by_id(tx, ids), query.limit))


def _page(found: Sequence[ExecutionView], limit: int) -> Page[ExecutionView]:
    return make_page(found, limit=limit, place_of=lambda view: [view.id])


async def get_execution(call: Call[NoQuery, NoBody]) -> Reply:
    return Reply(value=await _get(call, call.path_id("execution_id")))


async def get_execution_history(call: Call[NoQuery, NoBody]) -> Reply:
    execution_id = call.path_id("execution_id")
    async with call.services.parts.database.reading() as tx:
        moves = await executions.list_history(tx, execution_id)
    if not moves:
        await _get(call, execution_id)
    return Reply(
        value=[
            MoveAnswer(
                origin=move.origin,
                target=move.target,
                attempt=move.attempt,
                actor=move.actor,
                reason=move.reason,
                at=move.at,
            )
            for move in moves
        ]
    )


async def list_execution_children(call: Call[PageQuery, NoBody]) -> Reply:
    parent = call.path_id("execution_id")
    await _get(call, parent)
    (after,) = read_cursor(call.query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        ids = await executions.list_child_ids(tx, parent, after=after, limit=call.query.limit + 1)
        return Reply(value=_page(await executions.list_by_id(tx, ids), call.query.limit))


async def _get(
    call: Call[NoQuery, NoBody] | Call[PageQuery, NoBody] | Call[WaitQuery, ExecutionRequest],
    execution_id: int,
) -> ExecutionView:
    async with call.services.parts.database.reading() as tx:
        view = await executions.find(tx, execution_id)
    if view is None:
        raise NotFound(f"execution {execution_id} does not exist")
    return view


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.POST,
        path="/api/v1/executions",
        name="create_execution",
        summary="Ask for a run; with `wait` the answer comes when it ended, or after that time.",
        permission=CREATE,
        scope=Scope.INSTALLATION,
        query=WaitQuery,
        body=ExecutionRequest,
        answer=ExecutionView,
        status=202,
        also=(200, 404, 409, 422, 503),
        for_attempts=True,
        respond=create_execution,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/executions:batch",
        name="create_executions",
        summary="Ask for up to 1,000 runs, accepted in this order and all or none.",
        permission=CREATE,
        scope=Scope.INSTALLATION,
        body=BatchRequest,
        answer=BatchAnswer,
        status=202,
        also=(404, 409, 422, 503),
        for_attempts=True,
        respond=create_executions,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions",
        name="list_executions",
        summary="Executions, the newest first.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=ExecutionQuery,
        answer=Page[ExecutionView],
        respond=list_executions,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions/{execution_id}",
        name="get_execution",
        summary="One execution.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=ExecutionView,
        also=(404,),
        for_attempts=True,
        respond=get_execution,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions/{execution_id}/history",
        name="get_execution_history",
        summary="How an execution came to be where it is, move by move.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=list[MoveAnswer],
        also=(404,),
        for_attempts=True,
        respond=get_execution_history,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/executions/{execution_id}/children",
        name="list_execution_children",
        summary="The executions that an execution asked for.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=PageQuery,
        answer=Page[ExecutionView],
        also=(404,),
        for_attempts=True,
        respond=list_execution_children,
    ),
)
# Rights that a route asks for beyond its own, depending on what is sent.
FURTHER_PERMISSIONS: Final[tuple[Permission, ...]] = (PIN, PRIORITISE)
