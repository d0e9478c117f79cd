"""Refuses whatever can be refused of a request before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from attune.domain.errors import AttuneError, FieldError, Invalid, NotFound
from attune.domain.json_values import Json
from attune.domain.parameters import validate_parameters
from attune.domain.refs import did_you_mean
from attune.operations.access.set_secrets_aside import set_secrets_aside
from attune.runtime.vault import WITHOUT_KEY, Vault
from attune.storage import actions
from attune.storage.births import NewExecution
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One execution somebody asks for."""

    action_ref: str
    parameters: Mapping[str, Json]
    priority: int = 0
    trace_tag: str | None = None
    traceparent: str | None = None
    not_before: datetime | None = None
    worker_id: int | None = None
    worker_queue_ttl_seconds: float | None = None
    # Who asks for it as a part of itself; nobody can say so from outside.
    parent: int | None = None


async def prepare_executions(
    tx: Tx, requests: Sequence[Request], *, identity: int | None, requested_by: str, vault: Vault = WITHOUT_KEY
) -> list[NewExecution]:
    """Refuse whatever can be refused before anything is written; pointers name the request in its list."""
    known = await actions.find_runnable(tx, sorted({request.action_ref for request in requests}))
    prepared = []
    for position, request in enumerate(requests):
        prefix = f"/executions/{position}" if len(requests) > 1 else ""
        if (action := known.get(request.action_ref)) is None:
            suggestion = did_you_mean(request.action_ref, await actions.list_refs(tx))
            msg = f"action {request.action_ref!r} does not exist{suggestion}"
            raise NotFound(msg, code="unknown_action", fields=[FieldError(pointer=f"{prefix}/action_ref", message=msg)])
        prepared.append(_prepare(request, action, prefix=prefix, vault=vault, identity=identity, by=requested_by))
    return prepared


def _prepare(
    request: Request, action: actions.Runnable, *, prefix: str, vault: Vault, identity: int | None, by: str
) -> NewExecution:
    if not action.enabled:
        msg = f"action {action.ref} is disabled"
        raise Invalid(msg, code="action_disabled", fields=[FieldError(pointer=f"{prefix}/action_ref", message=msg)])
    try:
        complete = validate_parameters(action.parameters, dict(request.parameters))
        parameters, seal = set_secrets_aside(vault, action.parameters, complete)
    except AttuneError as error:
        fields = [replace(field, pointer=f"{prefix}/parameters{field.pointer}") for field in error.fields]
        raise type(error)(error.message, code=error.code, fields=fields) from None  # The cause knows the parameters.
    return NewExecution(
        action_id=action.action_id,
        action_ref=action.ref,
        pack_version=action.pack_version,
        runner=action.runner,
        parameters=parameters,
        priority=request.priority,
        identity=identity,
        max_attempts=action.max_attempts,
        timeout_seconds=action.timeout_seconds,
        worker_queue_ttl_seconds=request.worker_queue_ttl_seconds or action.worker_queue_ttl_seconds,
        not_before=request.not_before,
        pinned_to=request.worker_id,
        parent=request.parent,
        trace_tag=request.trace_tag,
        traceparent=request.traceparent,
        changed_by=by,
        seal=seal,
    )
