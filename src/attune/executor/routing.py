"""Which operation a message asks for."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from attune.domain.messages import Item, Message, MessageType
from attune.operations.bury_dead_letters import bury_dead_letters
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.place_admitted import place_admitted
from attune.operations.place_requested import place_requested
from attune.operations.release_executions import release_executions
from attune.storage.tx import Tx
from attune.transport.consume import Handler

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


def dead_letter_operations(*, placements_max: int) -> Mapping[str, Operation]:
    """What is done with what died on its way."""

    async def ignore(_tx: Tx, _items: Sequence[Item]) -> None:
        """A cancel or a ping nobody took: the heartbeat carries the flag, and the next ping is under way."""

    return {
        MessageType.EXECUTION_DISPATCHED: lambda tx, items: bury_dead_letters(tx, items, placements_max=placements_max),
        MessageType.EXECUTION_CANCEL_REQUESTED: ignore,
        MessageType.WORKER_PINGED: ignore,
    }


def handler_of(operations: Mapping[str, Operation]) -> Handler:
    """One call per type and batch, however many messages it came in."""

    async def handle(tx: Tx, messages: Sequence[Message]) -> None:
        by_type: dict[str, dict[Item, None]] = {}
        for message in messages:
            by_type.setdefault(message.type, {}).update(dict.fromkeys(message.items))
        for type_, items in by_type.items():
            await operations[type_](tx, list(items))

    return handle
