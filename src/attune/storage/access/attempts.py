"""Attempts as they prove themselves to the API: by the lease they hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from attune.domain.permission import Grant, read_grants
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingAttempt:
    """An attempt that holds its lease at this moment, and who asked for its execution."""

    execution_id: int
    attempt: int
    lease: UUID
    identity: int | None
    grants: tuple[Grant, ...]


async def find_living(tx: Tx, execution_ids: Sequence[int]) -> dict[int, LivingAttempt]:
    """Those of these executions that run right now; not if whoever asked for them was shut out."""
    rows = await tx.fetch(
        """
        SELECT a.execution_id, a.attempt, a.lease, e.identity,
               ARRAY(SELECT s.grants FROM identity_permission_set ip JOIN permission_set s ON s.id = ip.permission_set
                      WHERE ip.identity = e.identity) AS grants
          FROM assignment a JOIN execution e ON e.id = a.execution_id LEFT JOIN identity i ON i.id = e.identity
         WHERE a.execution_id = ANY($1) AND a.started_at IS NOT NULL AND a.lease_until > now()
           AND (e.identity IS NULL OR i.enabled)
        """,
        execution_ids,
    )
    return {
        row["execution_id"]: LivingAttempt(
            execution_id=row["execution_id"],
            attempt=row["attempt"],
            lease=row["lease"],
            identity=row["identity"],
            grants=read_grants(grant for grants in row["grants"] for grant in grants),
        )
        for row in rows
    }
