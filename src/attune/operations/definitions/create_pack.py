"""Makes a pack without a folder, to hold actions and policies that are created one by one."""

import hashlib

import msgspec

from attune.domain.definitions import PackDefinition
from attune.domain.errors import Conflict
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.storage.definitions import packs
from attune.storage.tx import Tx

SOURCE = "api"


async def create_pack(tx: Tx, pack: PackDefinition, *, by: Actor) -> None:
    """Create the pack; one of this name must not exist."""
    await packs.lock_ref(tx, pack.ref)
    if await packs.find(tx, pack.ref) is not None:
        raise Conflict(f"pack {pack.ref} exists already", code="already_exists")
    # It has no files to digest, so its own words stand for its content.
    digest = hashlib.sha256(msgspec.json.encode(pack)).hexdigest()
    await packs.save(tx, pack, digest=digest, source=SOURCE)
    await write_audit(
        tx,
        [Deed(operation="pack.create", resource=f"pack/{pack.ref}", by=by, detail={"version": pack.version})],
    )
    tx.broadcast("pack")
