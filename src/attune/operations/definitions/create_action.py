"""Adds one action to a pack that exists."""

from attune.domain.definitions import ActionDefinition
from attune.domain.errors import Conflict, FieldError, Invalid
from attune.domain.refs import did_you_mean, pack_of
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.storage import actions
from attune.storage.definitions import packs
from attune.storage.tx import Tx


async def create_action(tx: Tx, action: ActionDefinition, *, by: Actor) -> None:
    """Create the action; one of this name must not exist."""
    pack_id = await lock_pack_of(tx, action.ref)
    if await actions.find_runnable(tx, [action.ref]):
        raise Conflict(f"action {action.ref} exists already", code="already_exists")
    await actions.save_many(tx, pack_id, [action], adhoc=True)
    detail = {"runner": action.runner.value}
    await write_audit(tx, [Deed(operation="action.create", resource=f"action/{action.ref}", by=by, detail=detail)])
    tx.broadcast("pack")


async def lock_pack_of(tx: Tx, ref: str) -> int:
    """Keep the pack that a name belongs to as it is until the transaction ends."""
    name = pack_of(ref)
    await packs.lock_ref(tx, name)
    pack = await packs.find(tx, name)
    if pack is None:
        suggestion = did_you_mean(name, await packs.list_refs(tx))
        message = f"there is no pack {name!r}{suggestion}"
        raise Invalid(message, code="unknown_pack", fields=[FieldError(pointer="/ref", message=message)])
    return pack.id
