"""Rows of `token`: what programs and browsers prove themselves with; only hashes are stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.permission import Caller, read_grants
from attune.storage.tx import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token as its owner sees it; the secret is not among what is kept."""

    id: int
    name: str
    identity: str
    permission_set: str | None
    created: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


async def find_callers(tx: Tx, hashes: Sequence[bytes]) -> dict[bytes, Caller]:
    """Who holds these tokens, as far as they are good at this moment: one look-up for all who ask together."""
    rows = await tx.fetch(
        """
        SELECT t.hash, t.id AS token_id, i.id AS identity, i.login, n.ref AS narrowed_to, n.grants AS narrowing,
               ARRAY(SELECT s.grants FROM identity_permission_set ip JOIN permission_set s ON s.id = ip.permission_set
                      WHERE ip.identity = i.id) AS grants
          FROM token t JOIN identity i ON i.id = t.identity LEFT JOIN permission_set n ON n.id = t.permission_set
         WHERE t.hash = ANY($1) AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
           AND i.enabled AND t.epoch = i.epoch
        """,
        hashes,
    )
    return {row["hash"]: _caller(row) for row in rows}


def _caller(row: Row) -> Caller:
    return Caller(
        identity=row["identity"],
        login=row["login"],
        token_id=row["token_id"],
        grants=read_grants(grant for grants in row["grants"] for grant in grants),
        narrowed_to=row["narrowed_to"],
        narrowing=read_grants(row["narrowing"] or []),
    )


async def insert(
    tx: Tx, *, identity: int, name: str, hashed: bytes, permission_set: int | None, lifetime_seconds: float | None
) -> TokenRow:
    """Add a token of the identity's present epoch; without a lifetime it is good until it is revoked."""
    (row,) = await tx.fetch(
        """
        INSERT INTO token (identity, name, hash, permission_set, epoch, expires_at)
        SELECT i.id, $2, $3, $4, i.epoch, now() + make_interval(secs => $5) FROM identity i WHERE i.id = $1
        RETURNING id, name, (SELECT login FROM identity WHERE id = $1) AS identity,
                  (SELECT ref FROM permission_set WHERE id = $4) AS permission_set, created, expires_at, revoked_at
        """,
        identity,
        name,
        hashed,
        permission_set,
        lifetime_seconds,
    )
    return TokenRow(**dict(row))


async def list_page(tx: Tx, *, owner: int | None, after: int, limit: int) -> list[TokenRow]:
    """Tokens in the order of their ids; an owner of None means everybody's."""
    rows = await tx.fetch(
        """
        SELECT t.id, t.name, i.login AS identity, s.ref AS permission_set, t.created, t.expires_at, t.revoked_at
          FROM token t JOIN identity i ON i.id = t.identity LEFT JOIN permission_set s ON s.id = t.permission_set
         WHERE t.id > $2 AND ($1::bigint IS NULL OR t.identity = $1)
         ORDER BY t.id LIMIT $3
        """,
        owner,
        after,
        limit,
    )
    return [TokenRow(**dict(row)) for row in rows]


async def revoke(tx: Tx, token_id: int, *, owner: int | None) -> str | None:
    """End a token and return its name; None if the owner has no such token. Revoking twice keeps the first time."""
    name: str | None = await tx.fetch_value(
        """
        UPDATE token SET revoked_at = COALESCE(revoked_at, now())
         WHERE id = $1 AND ($2::bigint IS NULL OR identity = $2) RETURNING name
        """,
        token_id,
        owner,
    )
    return name


async def delete_expired(tx: Tx, identity: int) -> None:
    """Forget an identity's tokens that ended by themselves, so that logging in every day leaves nothing behind."""
    await tx.execute("DELETE FROM token WHERE identity = $1 AND expires_at < now()", identity)
