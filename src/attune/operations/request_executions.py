"""Accepts executions: durable, and announced in the transaction that makes them so."""

from collections.abc import Sequence

from attune.domain.messages import MessageType
from attune.storage import executions
from attune.storage.executions import Inserted, NewExecution
from attune.storage.tx import Tx


async def request_executions(tx: Tx, prepared: Sequence[NewExecution]) -> list[Inserted]:
    """Make them durable in the order given, and tell the executors."""
    inserted = await executions.insert_many(tx, prepared)
    for row in inserted:
        tx.announce(
            MessageType.EXECUTION_REQUESTED,
            MessageType.EXECUTION_REQUESTED,
            [(row.execution_id, 0)],
            delay_seconds=row.delay_seconds,
        )
    return inserted
