"""Rows of `worker` as people steer them: taken out of placement and let back in."""

from dataclasses import dataclass
from uuid import UUID

from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """A worker under a lock that no placement passes."""

    worker_id: int
    name: str
    instance: UUID
    status: str
    cordoned: bool
    leaving: bool


async def lock(tx: Tx, worker_id: int) -> Steered | None:
    """Lock against placements too: FOR UPDATE waits for those under way and holds off those to come."""
    row = await tx.fetch_row(
        """
        SELECT id AS worker_id, name, instance, status, cordoned, leaving FROM worker WHERE id = $1 FOR UPDATE
        """,
        worker_id,
    )
    return Steered(**dict(row)) if row else None


async def save(tx: Tx, worker_id: int, *, status: str, cordoned: bool) -> None:
    """Write what was decided about a locked worker; from now on people say whether it is cordoned."""
    await tx.execute(
        """
        UPDATE worker SET status = $2, cordoned = $3, cordon_reason = NULL, updated = now() WHERE id = $1
        """,
        worker_id,
        status,
        cordoned,
    )


async def cordon_itself(tx: Tx, instance: UUID, reason: str) -> bool:
    """Keep placement away from a worker that says why; False if it is cordoned already."""
    return bool(
        await tx.fetch_value(
            """
            UPDATE worker SET cordoned = true, cordon_reason = $2, updated = now()
             WHERE instance = $1 AND NOT cordoned
            RETURNING true
            """,
            instance,
            reason,
        )
    )


async def uncordon_itself(tx: Tx, instance: UUID) -> bool:
    """Let placement come back to a worker that had cordoned itself; False if people have decided since."""
    return bool(
        await tx.fetch_value(
            """
            UPDATE worker SET cordoned = false, cordon_reason = NULL, updated = now()
             WHERE instance = $1 AND cordoned AND cordon_reason IS NOT NULL
            RETURNING true
            """,
            instance,
        )
    )
