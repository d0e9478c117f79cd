"""Gives an identity a new token; its secret exists only in the answer."""

from dataclasses import dataclass

from attune.domain.errors import FieldError, Invalid
from attune.domain.refs import did_you_mean
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.runtime.passwords import hash_token, mint_token
from attune.storage.access import permission_sets, tokens
from attune.storage.access.tokens import TokenRow
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """A token somebody wants: for whom, narrowed to which permission set, for how long."""

    identity: int
    name: str
    permission_set: str | None = None
    lifetime_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """The token as it is kept, and the secret, which is not."""

    row: TokenRow
    secret: str


async def create_token(tx: Tx, wanted: TokenRequest, *, by: Actor, operation: str = "token.create") -> NewToken:
    """Mint and store."""
    narrowing = await _find_permission_set(tx, wanted.permission_set)
    secret = mint_token()
    row = await tokens.insert(
        tx,
        identity=wanted.identity,
        name=wanted.name,
        hashed=hash_token(secret),
        permission_set=narrowing,
        lifetime_seconds=wanted.lifetime_seconds,
    )
    detail = {"name": row.name, "identity": row.identity, "permission_set": row.permission_set}
    await write_audit(tx, [Deed(operation=operation, resource=f"token/{row.id}", by=by, detail=detail)])
    return NewToken(row=row, secret=secret)


async def _find_permission_set(tx: Tx, ref: str | None) -> int | None:
    if ref is None:
        return None
    found = await permission_sets.find_id(tx, ref)
    if found is None:
        suggestion = did_you_mean(ref, await permission_sets.list_refs(tx))
        message = f"there is no permission set {ref!r}{suggestion}"
        field = FieldError(pointer="/permission_set", message=message)
        raise Invalid(message, code="unknown_permission_set", fields=[field])
    return found
