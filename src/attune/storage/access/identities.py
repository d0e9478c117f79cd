"""Rows of `identity`: people and programs that may log in."""

from dataclasses import dataclass

from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who somebody is, and what their password must match."""

    id: int
    login: str
    password_hash: str | None
    enabled: bool
    epoch: int


async def find_by_login(tx: Tx, login: str) -> Identity | None:
    """The identity of this name."""
    row = await tx.fetch_row("SELECT id, login, password_hash, enabled, epoch FROM identity WHERE login = $1", login)
    return Identity(**dict(row)) if row else None


async def lock_all(tx: Tx) -> None:
    """Let nobody else add an identity until this transaction ends."""
    await tx.execute("LOCK TABLE identity IN SHARE ROW EXCLUSIVE MODE")


async def exist(tx: Tx) -> bool:
    """Whether there is any identity at all."""
    return bool(await tx.fetch_value("SELECT EXISTS (SELECT 1 FROM identity)"))


async def insert(tx: Tx, *, login: str, display_name: str, password_hash: str | None) -> Identity:
    """Add an identity, without any right yet."""
    (row,) = await tx.fetch(
        """
        INSERT INTO identity (login, display_name, password_hash) VALUES ($1, $2, $3)
        RETURNING id, login, password_hash, enabled, epoch
        """,
        login,
        display_name,
        password_hash,
    )
    return Identity(**dict(row))


async def save_password(tx: Tx, identity: int, password_hash: str) -> None:
    """Replace the password; the new epoch ends every token that was given out before."""
    await tx.execute(
        "UPDATE identity SET password_hash = $2, epoch = epoch + 1, updated = now() WHERE id = $1",
        identity,
        password_hash,
    )


async def insert_permission_set(tx: Tx, identity: int, permission_set: str) -> None:
    """Give an identity a permission set by its ref."""
    await tx.execute(
        """
        INSERT INTO identity_permission_set (identity, permission_set)
        SELECT $1, id FROM permission_set WHERE ref = $2 ON CONFLICT DO NOTHING
        """,
        identity,
        permission_set,
    )
