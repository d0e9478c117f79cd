"""Empties a line: cancels who waits in it, up to the last who had joined when it was asked for.

The entries themselves leave when the ends are handled, as every other entry does.
"""

from collections.abc import Sequence
from contextlib import suppress

from attune.domain.errors import NotFound
from attune.domain.execution import Change, Failure, Status
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.change_executions import change_executions
from attune.operations.lines.pause_line import lock_line
from attune.storage import executions
from attune.storage.database import Database
from attune.storage.line_upkeep import controls
from attune.storage.line_upkeep.controls import Place
from attune.storage.tx import Tx

# Each batch is a transaction of its own, so that admission gets its turn in between.
BATCH_MAX = 500
LINES_MAX = 1000
REASON = "line_cleared"


async def clear_line(database: Database, line_id: int, *, by: Actor) -> int:
    """Cancel everybody who waits now; returns how many. Who joins meanwhile is left alone."""
    async with database.transaction() as tx:
        last_seq = (await lock_line(tx, line_id)).next_seq - 1
        detail = {"last_seq": last_seq}
        await write_audit(tx, [Deed(operation="line.clear", resource=f"line/{line_id}", by=by, detail=detail)])
    cancelled, place = 0, Place()
    while True:
        async with database.transaction() as tx:
            # Ends, because every turn goes on behind the last, and seqs above `last_seq` are not looked at.
            await controls.lock_many(tx, [line_id])
            batch = await controls.list_waiting(tx, line_id, after=place, seq_max=last_seq, limit=BATCH_MAX)
            cancelled += await _cancel(tx, [entry.execution_id for entry in batch], by=by.name)
        if len(batch) < BATCH_MAX:
            return cancelled
        place = batch[-1].place


async def clear_all_lines(database: Database, *, by: Actor) -> dict[int, int]:
    """Clear every line in which somebody waits; returns how many were cancelled in each."""
    cancelled: dict[int, int] = {}
    after = 0
    while True:
        async with database.reading() as tx:
            line_ids = await controls.list_occupied(tx, after=after, limit=LINES_MAX)
        for line_id in line_ids:
            # Meanwhile everybody may have left it, and the line with them.
            with suppress(NotFound):
                cancelled[line_id] = await clear_line(database, line_id, by=by)
        if len(line_ids) < LINES_MAX:
            return cancelled
        after = line_ids[-1]


async def _cancel(tx: Tx, ids: Sequence[int], *, by: str) -> int:
    locked = await executions.lock_many(tx, sorted(ids))
    failure = Failure(code="line_cleared", message=f"its line was cleared by {by}", by=by)
    changes = [
        Change(
            execution_id=execution_id,
            current=Status.QUEUED,
            attempt=row.running.attempt,
            target=Status.CANCELLED,
            actor=by,
            reason=REASON,
            failure=failure,
        )
        for execution_id, row in locked.items()
        if row.running.status is Status.QUEUED
    ]
    return len(await change_executions(tx, changes))
