"""Gives the room of executions that end on a worker to the next, in the transaction that ends them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attune.domain.execution import Status
from attune.domain.messages import Item, MessageType
from attune.domain.placement import Candidate, Waiting
from attune.operations.lines.admit_waiting import ADMITTED_MAX, announce_wakes
from attune.operations.place_admitted import choose_for_waiting
from attune.operations.place_newcomers import choose_for_newcomers, write_newcomers
from attune.operations.schedule_executions import schedule_executions
from attune.operations.start_executions import Claimant, Started, take_executions
from attune.runtime.failpoints import afailpoint
from attune.storage import lines, placing
from attune.storage.tx import Tx

Draw = Callable[[], float]


@dataclass(slots=True, kw_only=True)
class Taker:
    """The worker that asks: what is placed on it, it takes, as far as it has slots."""

    claimant: Claimant
    # Sets slots aside for as many of these attempts as there are, and says for which.
    reserve: Callable[[Sequence[Item]], Sequence[Item]]
    placed: int = 0

    def choose(self, waiting: Sequence[Waiting], chosen: Mapping[int, Candidate]) -> dict[int, Waiting]:
        """Of those for whom a worker was chosen, the ones that this worker takes."""
        mine = {
            (item.execution_id, item.attempt + 1): item
            for item in waiting
            if (candidate := chosen.get(item.execution_id)) and candidate.instance == str(self.claimant.instance)
        }
        self.placed += len(mine)
        return {key[0]: mine[key] for key in self.reserve(list(mine))}


async def pass_slots_on(tx: Tx, ended: Sequence[int], *, taker: Taker, draw: Draw) -> list[Started]:
    """Release, admit and place; returns what the worker that asks has taken.

    An end need not be told if its room is taken again at once: the slots of its line are passed on, and whoever waits
    for room would find no more of it than before. Ends that brought about others are told as ever.
    """
    admitted = await lines.admit(tx, (), ended, limit=ADMITTED_MAX)
    await afailpoint("admit.before_place")
    started: list[Started] = []
    for pool in sorted({pool for _, pool in admitted.waiting}):
        newcomers = [item for item, its_pool in admitted.waiting if its_pool == pool]
        started += await _place(tx, newcomers, pool=pool, taker=taker, draw=draw)
    announce_wakes(tx, admitted)
    _keep_quiet(tx, ended, taker.placed)
    return started


async def _place(tx: Tx, newcomers: Sequence[Waiting], *, pool: int, taker: Taker, draw: Draw) -> list[Started]:
    """Place newcomers, or, where others wait for room, let them wait behind those and place the first of all."""
    actor = taker.claimant.name
    found = await placing.open_pool(tx, pool)
    chosen = choose_for_newcomers(found, newcomers, draw=draw)
    taken = taker.choose(newcomers, chosen)
    started = await take_executions(tx, list(taken.values()), current=Status.QUEUED, claimant=taker.claimant)
    rest = [item for item in newcomers if item.execution_id not in taken]
    await write_newcomers(tx, rest, chosen, pool=pool, current=Status.QUEUED, actor=actor)
    if found is None or not found.awaited:
        return started
    waiting, chosen = await choose_for_waiting(tx, found, pool=pool, draw=draw)
    taken = taker.choose(waiting, chosen)
    started += await take_executions(tx, list(taken.values()), current=Status.SCHEDULING, claimant=taker.claimant)
    waiting = [item for item in waiting if item.execution_id not in taken]
    await schedule_executions(tx, waiting, chosen, current=Status.SCHEDULING, actor=actor)
    return started


def _keep_quiet(tx: Tx, ended: Sequence[int], placed_here: int) -> None:
    told = tx.withdraw(topic := MessageType.EXECUTION_COMPLETED, topic)
    settled = {item for item in told if item[0] in ended}
    tx.announce(topic, topic, [item for item in told if placed_here < len(settled) or item not in settled])
