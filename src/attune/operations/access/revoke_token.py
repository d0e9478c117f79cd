"""Ends a token; the next request that carries it is refused."""

from attune.domain.errors import NotFound
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.storage.access import tokens
from attune.storage.tx import Tx


async def revoke_token(tx: Tx, token_id: int, *, owner: int | None, by: Actor) -> None:
    """Revoke; a token of somebody else does not exist for an owner."""
    name = await tokens.revoke(tx, token_id, owner=owner)
    if name is None:
        raise NotFound(f"token {token_id} does not exist")
    await write_audit(tx, [Deed(operation="token.revoke", resource=f"token/{token_id}", by=by, detail={"name": name})])
