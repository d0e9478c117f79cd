"""Whether anybody could run what was asked for: who accepts work and who gives it up ask the same.

An action is served if a worker that is alive, and that nobody has taken out, could run it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.domain.definitions import Isolation
from attune.domain.placement import Candidate, Requirements
from attune.storage.actions import requirements_of
from attune.storage.tx import Tx


async def list_unserved(tx: Tx, action_ids: Sequence[int]) -> dict[int, Requirements]:
    """Those of these actions that nobody could run, and what they ask for."""
    rows = await tx.fetch(
        "SELECT a.id, a.runner, a.labels, a.isolation FROM action a WHERE a.id = ANY($1) AND NOT is_served(a)",
        action_ids,
    )
    return {row["id"]: requirements_of(row) for row in rows}


async def list_living(tx: Tx) -> list[Candidate]:
    """Every worker that counts as alive, taken out or not; its load is not looked at."""
    rows = await tx.fetch(
        "SELECT w.id, w.instance, w.runtimes, w.labels, w.isolation, w.capacity FROM worker w WHERE is_living(w)"
    )
    return [
        Candidate(
            worker_id=row["id"],
            instance=str(row["instance"]),
            runtimes=frozenset(row["runtimes"]),
            labels=row["labels"],
            isolation=Isolation(row["isolation"]),
            capacity=row["capacity"],
            load=0,
        )
        for row in rows
    ]


async def list_unserved_executions(tx: Tx, execution_ids: Sequence[int]) -> list[int]:
    """Those of these executions that nobody could run."""
    return await tx.fetch_column(
        "SELECT e.id FROM execution e JOIN action a ON a.id = e.action WHERE e.id = ANY($1) AND NOT is_served(a)",
        execution_ids,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranded:
    """An execution that waited for a worker as long as it may."""

    execution_id: int
    action_id: int


async def list_stranded(tx: Tx, *, timeout_seconds: float, limit: int) -> list[Stranded]:
    """Who waits for a worker longer than the timeout, or was accepted without one and whose grace is over.

    Only where nobody could run it; whoever merely waits for room, or for the release of its action, goes on waiting.
    """
    rows = await tx.fetch(
        """
        WITH waiting AS (
            SELECT u.execution_id, u.action_id FROM unplaced u JOIN action a ON a.id = u.action_id
             WHERE a.quarantined_at IS NULL AND GREATEST(u.since, a.released_at) < now() - make_interval(secs => $1)
            UNION
            SELECT id, action FROM execution WHERE worker_by < now() AND ended_at IS NULL AND attempt = 0
        ), unserved AS (
            SELECT a.id FROM action a
             WHERE a.id IN (SELECT action_id FROM waiting) AND NOT is_served(a)
        )
        SELECT w.execution_id, w.action_id FROM waiting w JOIN unserved u ON u.id = w.action_id
         ORDER BY w.execution_id LIMIT $2
        """,
        timeout_seconds,
        limit,
    )
    return [Stranded(**dict(row)) for row in rows]


async def settle_served(tx: Tx, *, limit: int) -> None:
    """Forget the grace of executions for which a worker came in time, or that are over."""
    await tx.execute(
        """
        UPDATE execution SET worker_by = NULL WHERE id = ANY(ARRAY(
            SELECT e.id FROM execution e JOIN action a ON a.id = e.action
             WHERE e.worker_by < now() AND (e.ended_at IS NOT NULL OR e.attempt > 0 OR is_served(a))
             ORDER BY e.id LIMIT $1 FOR NO KEY UPDATE OF e SKIP LOCKED))
        """,
        limit,
    )
