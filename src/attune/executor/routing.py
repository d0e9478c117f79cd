"""Which operation a message asks for."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.endings.dead_letters import Outcome, expiries_of
from attune.domain.messages import Item, Message, MessageType
from attune.operations.dead_letters.bury_dead_letters import bury_dead_letters
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.place_admitted import place_admitted
from attune.operations.place_requested import place_requested
from attune.operations.release_executions import release_executions
from attune.storage.tx import Commit, Tx
from attune.transport.consume import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Burial:
    """What a batch of dead letters came to, and when each of them had died."""

    outcomes: Sequence[Outcome]
    died_at: Sequence[datetime]


Operation = Callable[[Tx, Sequence[Item]], Awaitable[object]]
Draw = Callable[[], float]


def operations_by_type(*, actor: str, max_queue_length: int, draw: Draw) -> Mapping[str, Operation]:
    """The table of what an executor does with what it is told."""
    return {
        MessageType.EXECUTION_REQUESTED: lambda tx, items: place_requested(
            tx, [item[0] for item in items], max_queue_length=max_queue_length, actor=actor, draw=draw
        ),
        MessageType.LINE_CHANGED: lambda tx, items: admit_waiting(
            tx, [item[0] for item in items], actor=actor, draw=draw
        ),
        MessageType.POOL_CHANGED: lambda tx, items: place_admitted(
            tx, [item[0] for item in items], actor=actor, draw=draw
        ),
        MessageType.EXECUTION_COMPLETED: lambda tx, items: release_executions(
            tx, [item[0] for item in items], actor=actor, draw=draw
        ),
    }


# What may be found among the dead letters. A cancel or a ping nobody took needs nothing: the heartbeat carries the
# flag, and the next ping is under way.
DEAD_LETTER_TYPES = frozenset(
    {MessageType.EXECUTION_DISPATCHED, MessageType.EXECUTION_CANCEL_REQUESTED, MessageType.WORKER_PINGED}
)


def dead_letter_handler(*, placements_max: int, tell: Callable[[Burial], None]) -> Handler:
    """What is done with what died on its way; what that came to is told once it is committed."""

    async def handle(tx: Tx, messages: Sequence[Message]) -> None:
        expiries = expiries_of(messages)
        if not expiries:
            return
        outcomes = await bury_dead_letters(tx, expiries, placements_max=placements_max)
        burial = Burial(outcomes=outcomes, died_at=[each.died_at for each in expiries])
        tx.at_end(lambda commit: tell(burial) if commit is Commit.DONE else None)

    return handle


def handler_of(operations: Mapping[str, Operation]) -> Handler:
    """One call per type and batch, however many messages it came in."""

    async def handle(tx: Tx, messages: Sequence[Message]) -> None:
        by_type: dict[str, dict[Item, None]] = {}
        for message in messages:
            by_type.setdefault(message.type, {}).update(dict.fromkeys(message.items))
        for type_, items in by_type.items():
            await operations[type_](tx, list(items))

    return handle
