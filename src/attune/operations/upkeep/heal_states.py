"""The last net: states that should not last get a fresh hint. In a fault-free run it finds nothing."""

from attune.domain.messages import MessageType
from attune.operations.workers.hint_room import hint_room
from attune.runtime.failpoints import afailpoint
from attune.storage import executions, lines, unplaced
from attune.storage.tx import Tx

# A requested execution is normally placed within milliseconds of being due.
OVERDUE_SECONDS = 60.0
UNPLACED_SECONDS = 5.0
STUCK_SECONDS = 5.0
# A slot is given back within milliseconds of an end, by a message that a broker may lose with its disk.
LEAKED_SECONDS = 5.0
HEALED_MAX = 1000


async def heal_states(tx: Tx) -> int:
    """Repeat the hints of executions that nobody seems to look at; a hint too many is harmless."""
    overdue = await executions.list_due(tx, overdue_seconds=OVERDUE_SECONDS, limit=HEALED_MAX)
    if overdue:
        items = [(execution_id, 0) for execution_id in overdue]
        tx.announce(MessageType.EXECUTION_REQUESTED, MessageType.EXECUTION_REQUESTED, items)
    stuck = await lines.list_stuck(tx, seconds=STUCK_SECONDS, limit=HEALED_MAX)
    if stuck:
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0) for line_id in stuck])
    leaked = await lines.list_leaked(tx, seconds=LEAKED_SECONDS, limit=HEALED_MAX)
    if leaked:
        tx.announce(MessageType.EXECUTION_COMPLETED, MessageType.EXECUTION_COMPLETED, leaked)
    await afailpoint("sweep.state_audit.selected")
    if await unplaced.exists_older_than(tx, seconds=UNPLACED_SECONDS):
        await hint_room(tx)
    return len(overdue) + len(stuck) + len(leaked)
