"""Adds one policy to a pack that exists."""

from attune.domain.definitions import PolicyDefinition
from attune.domain.errors import Conflict
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.definitions.create_action import lock_pack_of
from attune.operations.install_pack import save_policies
from attune.storage.definitions import policies
from attune.storage.tx import Tx


async def create_policy(tx: Tx, policy: PolicyDefinition, *, by: Actor) -> None:
    """Create the policy; one of this name must not exist."""
    pack_id = await lock_pack_of(tx, policy.ref)
    if await policies.find(tx, policy.ref) is not None:
        raise Conflict(f"policy {policy.ref} exists already", code="already_exists")
    await save_policies(tx, pack_id, [policy], adhoc=True)
    await write_audit(tx, [Deed(operation="policy.create", resource=f"policy/{policy.ref}", by=by)])
    tx.broadcast("policy")
