"""Sends dead letters again on a person's word, as far as that can still do anything."""

from collections.abc import Sequence

from attune.domain.endings.dead_letters import Verdict, decide_replay
from attune.domain.execution import Status
from attune.domain.messages import MessageType
from attune.operations.access.write_audit import Actor
from attune.operations.dead_letters.settle_dead_letters import settle_dead_letters
from attune.runtime.failpoints import afailpoint
from attune.storage import dead_letters, executions
from attune.storage.tx import Tx


async def replay_dead_letters(tx: Tx, dead_letter_ids: Sequence[int], *, by: Actor) -> list[Verdict]:
    """Announce each once more; one whose attempt is over, or that was settled before, is not sent and told so."""
    letters = {letter.id: letter for letter in await dead_letters.lock_many(tx, dead_letter_ids)}
    dispatched = {
        item[0]
        for letter in letters.values()
        if letter.type == MessageType.EXECUTION_DISPATCHED
        for item in letter.items
    }
    locked = await executions.lock_many(tx, sorted(dispatched))
    waiting = {
        (row.running.execution_id, row.running.attempt)
        for row in locked.values()
        if row.running.status is Status.SCHEDULED
    }
    verdicts = [decide_replay(letter, waiting) for letter in letters.values()]
    for verdict in verdicts:
        if verdict.effect:
            letter = letters[verdict.dead_letter_id]
            tx.announce(letter.topic, MessageType(letter.type), verdict.items)
    await afailpoint("dlq.replay.before_write")
    await settle_dead_letters(tx, verdicts, operation="dead_letter.replay", by=by)
    return verdicts
