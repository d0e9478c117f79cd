"""What placement looks at before it decides: a pool, opened for one transaction at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.domain.definitions import Isolation
from attune.domain.endings.dead_letters import AVOIDED_SECONDS
from attune.domain.placement import STALE_INTERVALS, Candidate, Requirements
from attune.storage.actions import requirements_of
from attune.storage.tx import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPool:
    """What the actions of a pool ask of a worker, and every worker that may be given work, with its load."""

    requirements: Requirements
    # These of its actions are held back.
    quarantined: Sequence[int]
    # Somebody who could be placed waits already.
    awaited: bool
    candidates: Sequence[Candidate]


async def open_pool(tx: Tx, pool: int) -> OpenPool | None:
    """Let nobody else place this pool until the transaction ends, and look at it then; None if no action is in it."""
    rows = await tx.fetch("SELECT * FROM open_pool($1, $2, $3)", pool, STALE_INTERVALS, AVOIDED_SECONDS)
    if not rows:
        return None
    first = rows[0]
    return OpenPool(
        requirements=requirements_of(first),
        quarantined=first["quarantined"],
        awaited=first["awaited"],
        candidates=[_candidate(row) for row in rows if row["worker_id"] is not None],
    )


def _candidate(row: Row) -> Candidate:
    return Candidate(
        worker_id=row["worker_id"],
        instance=str(row["instance"]),
        runtimes=frozenset(row["worker_runtimes"]),
        labels=row["worker_labels"],
        isolation=Isolation(row["worker_isolation"]),
        capacity=row["capacity"],
        load=row["load"],
        avoided=row["avoided"],
    )
