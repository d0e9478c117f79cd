"""Holds actions that take their workers down with them, until a person lets them go on."""

from collections.abc import Sequence
from uuid import UUID

from attune.domain.errors import NotFound
from attune.domain.refs import did_you_mean
from attune.operations.access.write_audit import Actor, Deed, write_audit
from attune.operations.workers.hint_room import hint_room
from attune.runtime.failpoints import afailpoint
from attune.storage import actions
from attune.storage.availability import quarantines
from attune.storage.executions import Locked
from attune.storage.tx import Tx

# So many workers lost in a row, with no success of the action in between, are no coincidence.
LOSSES_MAX = 3


async def count_losses(tx: Tx, losses: Sequence[tuple[int, UUID]]) -> list[int]:
    """Note actions whose attempts were lost with these workers; returns those that are held from now on."""
    if not losses:
        return []
    await afailpoint("quarantine.before_write")
    return await quarantines.add_losses(tx, losses, losses_max=LOSSES_MAX)


async def clear_suspects(tx: Tx, succeeded: Sequence[Locked]) -> None:
    """Whoever succeeds lost no worker; nothing is asked of the database where nobody was suspected."""
    if cleared := {row.waiting.action_id for row in succeeded if row.suspect}:
        await quarantines.forget_losses(tx, sorted(cleared))


async def release_action(tx: Tx, ref: str, *, by: Actor) -> None:
    """Let an action be placed again, and what waits of it; releasing one that is not held changes nothing."""
    released = await quarantines.release(tx, ref)
    if released is None:
        raise NotFound(f"action {ref!r} does not exist{did_you_mean(ref, await actions.list_refs(tx))}")
    if released:
        await hint_room(tx)
        await write_audit(tx, [Deed(operation="action.release", resource=f"action/{ref}", by=by)])
