"""Refuses whatever can be refused of a request before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from attune.domain.errors import AttuneError, FieldError, Invalid, NotFound
from attune.domain.parameters import validate_parameters
from attune.domain.refs import did_you_mean
from attune.operations.acceptance import Request, Wish
from attune.operations.access.set_secrets_aside import set_secrets_aside
from attune.runtime.vault import Vault
from attune.storage import actions
from attune.storage.actions import Runnable
from attune.storage.births import NewExecution
from attune.storage.tx import Tx


async def prepare_executions(tx: Tx, wishes: Sequence[Wish], *, vault: Vault) -> list[list[NewExecution] | AttuneError]:
    """Prepare what was asked for at the same time, each for itself: what is wrong with one is nobody else's concern."""
    refs = {request.action_ref for wish in wishes for request in wish.requests}
    known = await actions.find_runnable(tx, sorted(refs))
    names = [] if len(known) == len(refs) else await actions.list_refs(tx)
    return [_prepare_wish(wish, known, names, vault) for wish in wishes]


def _prepare_wish(
    wish: Wish, known: Mapping[str, Runnable], names: Sequence[str], vault: Vault
) -> list[NewExecution] | AttuneError:
    prefixes = [f"/executions/{position}" for position in range(len(wish.requests))] if len(wish.requests) > 1 else [""]
    try:
        return [
            _prepare(request, _find(request, known, names, prefix), prefix=prefix, vault=vault, wish=wish)
            for request, prefix in zip(wish.requests, prefixes, strict=True)
        ]
    except AttuneError as error:
        return error


def _find(request: Request, known: Mapping[str, Runnable], names: Sequence[str], prefix: str) -> Runnable:
    ref, pointer = request.action_ref, f"{prefix}/action_ref"
    if (action := known.get(ref)) is None:
        msg = f"action {ref!r} does not exist{did_you_mean(ref, names)}"
        raise NotFound(msg, code="unknown_action", fields=[FieldError(pointer=pointer, message=msg)])
    if not action.enabled:
        msg = f"action {ref} is disabled"
        raise Invalid(msg, code="action_disabled", fields=[FieldError(pointer=pointer, message=msg)])
    return action


def _prepare(request: Request, action: Runnable, *, prefix: str, vault: Vault, wish: Wish) -> NewExecution:
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
        identity=wish.identity,
        max_attempts=action.max_attempts,
        timeout_seconds=action.timeout_seconds,
        worker_queue_ttl_seconds=request.worker_queue_ttl_seconds or action.worker_queue_ttl_seconds,
        not_before=request.not_before,
        pinned_to=request.worker_id,
        parent=request.parent,
        trace_tag=request.trace_tag,
        traceparent=request.traceparent,
        changed_by=wish.requested_by,
        seal=seal,
    )
