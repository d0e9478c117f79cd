"""Records what a pack declares: new things appear, changed ones keep their ids, vanished ones go."""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.domain.definitions import PackDefinition, PolicyDefinition
from attune.domain.errors import FieldError, Invalid
from attune.domain.json_values import Json
from attune.domain.messages import MessageType
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.definitions.refuse_secret_groups import refuse_secret_groups
from attune.runtime.failpoints import afailpoint
from attune.storage import actions, lines
from attune.storage.definitions import packs, policies
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The pack's row, and whether anything had to change."""

    pack_id: int
    changed: bool
    removed: tuple[str, ...] = ()


async def install_pack(tx: Tx, pack: PackDefinition, *, digest: str, source: str, by: Actor) -> Installed:
    """Install or upgrade. The same content again changes nothing, so what an operator tuned since then stays."""
    await packs.lock_ref(tx, pack.ref)
    before = await packs.find(tx, pack.ref)
    if before is not None and before.digest == digest:
        return Installed(pack_id=before.id, changed=False)
    pack_id = await packs.save(tx, pack, digest=digest, source=source)
    removed = await _replace_contents(tx, pack_id, pack)
    await afailpoint("pack.install.before_commit")
    detail: dict[str, Json] = {"version": pack.version, "digest": digest, "source": source, "removed": list(removed)}
    await write_audit(tx, [Deed(operation="pack.install", resource=f"pack/{pack.ref}", by=by, detail=detail)])
    tx.broadcast("pack")
    return Installed(pack_id=pack_id, changed=True, removed=removed)


async def _replace_contents(tx: Tx, pack_id: int, pack: PackDefinition) -> tuple[str, ...]:
    # Policies that vanished go before the actions they may be about, and new ones come after.
    gone = await policies.delete_missing(tx, pack_id, [policy.ref for policy in pack.policies])
    gone += await actions.delete_missing(tx, pack_id, [action.ref for action in pack.actions])
    await actions.save_many(tx, pack_id, pack.actions)
    await save_policies(tx, pack_id, pack.policies, adhoc=False)
    return tuple(sorted(gone))


async def save_policies(tx: Tx, pack_id: int, declared: Sequence[PolicyDefinition], *, adhoc: bool) -> None:
    """Write policies, with their scopes resolved to what exists."""
    scopes = await policies.find_scope_ids(tx, [policy.scope for policy in declared])
    for policy in declared:
        if policy.scope not in scopes:
            message = f"policy {policy.ref} is about {policy.scope.kind} {policy.scope.ref!r}, which does not exist"
            field = FieldError(pointer=f"/scope/{policy.scope.kind}", message=message)
            raise Invalid(message, code="unknown_scope", fields=[field])
    await refuse_secret_groups(tx, declared)
    await policies.save_many(tx, pack_id, [(policy, scopes[policy.scope]) for policy in declared], adhoc=adhoc)
    # A limit that was raised admits at once.
    if touched := await lines.list_in_scopes(tx, sorted(scopes.values())):
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0) for line_id in touched])
