"""Notes what a person decided about dead letters, and that they did."""

from collections.abc import Sequence

from attune.domain.endings.dead_letters import Verdict
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.storage import dead_letters
from attune.storage.tx import Tx


async def settle_dead_letters(tx: Tx, verdicts: Sequence[Verdict], *, operation: str, by: Actor) -> None:
    """Write the outcomes that are new, each with its row in the audit log; the dead letters are locked."""
    new = [(each.dead_letter_id, each.outcome) for each in verdicts if each.outcome is not None and each.is_new]
    if not new:
        return
    await dead_letters.save_outcomes(tx, new, by=by.name)
    await write_audit(
        tx,
        [
            Deed(operation=operation, resource=f"dead_letter/{letter_id}", by=by, detail={"outcome": outcome})
            for letter_id, outcome in new
        ],
    )
