"""Gives dead letters up for good, on a person's word."""

from collections.abc import Sequence

from attune.domain.endings.dead_letters import Verdict, decide_drop
from attune.operations.access.write_audit import Actor
from attune.operations.dead_letters.settle_dead_letters import settle_dead_letters
from attune.storage import dead_letters
from attune.storage.tx import Tx


async def drop_dead_letters(tx: Tx, dead_letter_ids: Sequence[int], *, by: Actor) -> list[Verdict]:
    """Drop each; one that was settled before stays as it is and is told so."""
    verdicts = [decide_drop(letter) for letter in await dead_letters.lock_many(tx, dead_letter_ids)]
    await settle_dead_letters(tx, verdicts, operation="dead_letter.drop", by=by)
    return verdicts
