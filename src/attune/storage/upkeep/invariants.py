"""What must always be true of the data, as statements that return the rows which break it.

The same statements run in tests, under faults and on production data. Each has a page section in
`docs/reference/invariants.md`.
"""

from collections.abc import Sequence

from attune.domain.json_values import Json
from attune.storage.tx import Tx
from attune.storage.upkeep.checkpoints import Checkpoint
from attune.storage.upkeep.claims.admissions import ADMISSIONS
from attune.storage.upkeep.claims.alerts import ALERTS
from attune.storage.upkeep.claims.attempts import ATTEMPTS
from attune.storage.upkeep.claims.invariant import Invariant, Reads
from attune.storage.upkeep.claims.lines import LINES
from attune.storage.upkeep.claims.messages import MESSAGES, PARTITIONS
from attune.storage.upkeep.claims.placement import PLACEMENT

# A check shows at most this many offenders.
ROWS_MAX = 20

INVARIANTS: Sequence[Invariant] = (*ATTEMPTS, *PLACEMENT, *MESSAGES, *PARTITIONS, *LINES, *ADMISSIONS, *ALERTS)


async def find_violations(
    tx: Tx, invariant: Invariant, checkpoint: Checkpoint
) -> tuple[int, Sequence[dict[str, Json]]]:
    """How many rows behind a checkpoint break an invariant (counted up to a limit), and the first of them."""
    rows = await tx.fetch(invariant.statement + f" LIMIT {ROWS_MAX * 50}", *arguments(invariant, checkpoint))
    return len(rows), [dict(row) for row in rows[:ROWS_MAX]]


def arguments(invariant: Invariant, checkpoint: Checkpoint) -> Sequence[object]:
    """What the statement of an invariant wants to be told."""
    match invariant.reads:
        case Reads.STATE:
            return ()
        case Reads.HISTORY:
            return (checkpoint.history_since,)
        case Reads.ADMISSIONS:
            return (checkpoint.kind,)
