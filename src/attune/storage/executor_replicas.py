"""Rows of `executor_replica`: which executors are alive."""

from uuid import UUID

from attune.storage.tx import Tx


async def beat(tx: Tx, name: str, instance: UUID) -> None:
    """Register, or note a heartbeat."""
    await tx.execute(
        """
        INSERT INTO executor_replica AS r (name, instance) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE
           SET instance = EXCLUDED.instance, last_heartbeat = now(),
               started_at = CASE WHEN r.instance = EXCLUDED.instance THEN r.started_at ELSE now() END
        """,
        name,
        instance,
    )


async def delete(tx: Tx, instance: UUID) -> None:
    """Forget a replica that stopped."""
    await tx.execute("DELETE FROM executor_replica WHERE instance = $1", instance)
