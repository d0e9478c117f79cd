"""Changes parts of a policy, by merging a patch into the document that declares it (RFC 7396)."""

from collections.abc import Mapping

from attune.domain.definition_documents import policy_from_mapping
from attune.domain.errors import FieldError, Invalid, NotFound
from attune.domain.json_values import Json
from attune.domain.refs import did_you_mean
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.definitions.create_action import lock_pack_of
from attune.operations.install_pack import save_policies
from attune.storage.definitions import policies
from attune.storage.tx import Tx


async def change_policy(tx: Tx, ref: str, patch: Mapping[str, Json], *, by: Actor) -> None:
    """Merge the patch; the whole must still be a sound policy of the same name."""
    before = await policies.find(tx, ref)
    if before is None:
        raise NotFound(f"policy {ref!r} does not exist{did_you_mean(ref, await policies.list_refs(tx))}")
    pack_id = await lock_pack_of(tx, ref)
    before = await policies.find(tx, ref) or before
    policy = policy_from_mapping(merge(dict(before.document), patch))
    if policy.ref != ref:
        field = FieldError(pointer="/ref", message="a policy keeps its name")
        raise Invalid("a policy keeps its name", code="fixed_field", fields=[field])
    await save_policies(tx, pack_id, [policy], adhoc=before.adhoc)
    await write_audit(
        tx, [Deed(operation="policy.change", resource=f"policy/{ref}", by=by, detail={"patch": dict(patch)})]
    )
    tx.broadcast("policy")


def merge(document: Json, patch: Json | Mapping[str, Json]) -> Json:
    """Apply a JSON merge patch: objects are merged, null removes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged
