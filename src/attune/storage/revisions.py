"""How often each kind of thing has changed, for receivers who keep a copy of it."""

from collections.abc import Sequence

from attune.domain.messages import Broadcast
from attune.storage.tx import Tx


async def advance(tx: Tx, entities: Sequence[str]) -> list[Broadcast]:
    """Count one change of each; entities must be sorted, because the rows stay locked until the commit."""
    if not entities:
        return []
    rows = await tx.fetch(
        """
        INSERT INTO revision AS r (entity, revision)
        SELECT entity, 1 FROM unnest($1::text[]) AS e (entity)
        ON CONFLICT (entity) DO UPDATE SET revision = r.revision + 1, updated = now()
        RETURNING entity, revision
        """,
        entities,
    )
    return [Broadcast(entity=row["entity"], revision=row["revision"]) for row in rows]


async def list_all(tx: Tx) -> list[Broadcast]:
    """Every revision as it stands."""
    rows = await tx.fetch("SELECT entity, revision FROM revision ORDER BY entity")
    return [Broadcast(entity=row["entity"], revision=row["revision"]) for row in rows]
