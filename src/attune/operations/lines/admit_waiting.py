"""Lets those at the heads of lines go, as slots are free, and gives them a worker in the same transaction."""

from collections.abc import Callable, Sequence

from attune.domain.execution import Status
from attune.domain.messages import MessageType
from attune.operations.place_admitted import place_admitted
from attune.operations.place_newcomers import place_newcomers
from attune.runtime.failpoints import afailpoint
from attune.storage import lines
from attune.storage.lines import Admitted
from attune.storage.tx import Tx

# In one step a line admits at most this many; the message that told of it is repeated for the rest.
ADMITTED_MAX = 500


async def admit_waiting(
    tx: Tx,
    line_ids: Sequence[int],
    *,
    ended: Sequence[int] = (),
    roomier: Sequence[int] = (),
    actor: str,
    draw: Callable[[], float],
) -> int:
    """Release what ended executions held, admit, and place; returns how many were admitted or placed.

    In the pools that have become roomier those who waited for room are placed, too; here and not afterwards, because
    pools are locked in one order.
    """
    admitted = await lines.admit(tx, line_ids, ended, limit=ADMITTED_MAX)
    moved = len(admitted.waiting)
    await afailpoint("admit.before_place")
    for pool in sorted({pool for _, pool in admitted.waiting}.union(roomier)):
        mine = [item for item, its_pool in admitted.waiting if its_pool == pool]
        if mine:
            await place_newcomers(tx, mine, pool=pool, current=Status.QUEUED, actor=actor, draw=draw)
        if pool in roomier:
            moved += await place_admitted(tx, [pool], actor=actor, draw=draw)
    announce_wakes(tx, admitted)
    return moved


def announce_wakes(tx: Tx, admitted: Admitted) -> None:
    """Have lines looked at again that have to be, when they have to be."""
    for line_id, seconds in admitted.wake_seconds.items():
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line_id, 0)], delay_seconds=seconds)
