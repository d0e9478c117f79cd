"""Lets a paused line go on, in the order it has."""

from attune.domain.messages import MessageType
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.lines.pause_line import lock_line
from attune.storage.line_upkeep import controls
from attune.storage.tx import Tx


async def resume_line(tx: Tx, line_id: int, *, by: Actor) -> bool:
    """Resume and have somebody admit who waits; resuming again changes nothing. Returns whether it changed."""
    line = await lock_line(tx, line_id)
    if not line.paused:
        return False
    await controls.save_resume(tx, line_id)
    tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0)])
    await write_audit(tx, [Deed(operation="line.resume", resource=f"line/{line_id}", by=by)])
    return True
