"""Makes the first administrator, once in the life of an installation."""

from dataclasses import dataclass

from attune.operations.access.create_token import TokenRequest, create_token
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.storage.access import identities
from attune.storage.tx import Tx

PERMISSION_SET = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAdmin:
    """Who may log in from now on, and the secret of the command line's token."""

    login: str
    token_secret: str


async def bootstrap_admin(tx: Tx, *, login: str, password_hash: str, token_name: str, by: Actor) -> FirstAdmin | None:
    """Create the administrator; None if there is an identity already, also one made a moment ago elsewhere."""
    await identities.lock_all(tx)
    if await identities.exist(tx):
        return None
    identity = await identities.insert(tx, login=login, display_name="Administrator", password_hash=password_hash)
    await identities.insert_permission_set(tx, identity.id, PERMISSION_SET)
    await write_audit(tx, [Deed(operation="identity.create", resource=f"identity/{login}", by=by)])
    token = await create_token(tx, TokenRequest(identity=identity.id, name=token_name), by=by)
    return FirstAdmin(login=login, token_secret=token.secret)
