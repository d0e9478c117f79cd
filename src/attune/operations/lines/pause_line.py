"""Holds a line: who waits goes on waiting, who holds a slot goes on running."""

from attune.domain.errors import NotFound
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.storage.line_upkeep import controls
from attune.storage.line_upkeep.controls import LockedLine
from attune.storage.tx import Tx


async def pause_line(tx: Tx, line_id: int, *, by: Actor) -> bool:
    """Pause; pausing again changes nothing, not even who is named. Returns whether it changed."""
    line = await lock_line(tx, line_id)
    if line.paused:
        return False
    await controls.save_pause(tx, line_id, by=by.name)
    await write_audit(tx, [Deed(operation="line.pause", resource=f"line/{line_id}", by=by)])
    return True


async def lock_line(tx: Tx, line_id: int) -> LockedLine:
    """Lock one line; raises if there is none of this id."""
    line = (await controls.lock_many(tx, [line_id])).get(line_id)
    if line is None:
        raise NotFound(f"line {line_id} does not exist; lines that nobody stands in are removed")
    return line
