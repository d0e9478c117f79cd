"""Exchanges a password for a token that lasts a working day."""

from dataclasses import dataclass

from attune.domain.errors import Unauthenticated
from attune.operations.access.create_token import NewToken, TokenRequest, create_token
from attune.operations.access.write_audit import Actor
from attune.runtime.passwords import Passwords
from attune.storage.access import identities, tokens
from attune.storage.database import Database

LIFETIME_SECONDS = 12 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What somebody types in."""

    login: str
    password: str


async def log_in(
    database: Database, passwords: Passwords, credentials: Credentials, *, request_id: str | None
) -> NewToken:
    """Check the password outside any transaction, because that takes long on purpose, then give a token."""
    async with database.reading() as tx:
        identity = await identities.find_by_login(tx, credentials.login)
    hashed = identity.password_hash if identity and identity.enabled else None
    if not await passwords.verify(hashed, credentials.password) or identity is None:
        raise Unauthenticated("login or password is wrong", code="bad_login")
    actor = Actor(name=identity.login, identity=identity.id, request_id=request_id)
    wanted = TokenRequest(identity=identity.id, name="login", lifetime_seconds=LIFETIME_SECONDS)
    async with database.transaction() as tx:
        await tokens.delete_expired(tx, identity.id)
        return await create_token(tx, wanted, by=actor, operation="auth.login")
