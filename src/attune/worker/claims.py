"""How attempts that were placed on this worker become its own: claimed, kept waiting for a slot, or given back."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from attune.domain.messages import Item, Message, MessageType
from attune.operations.attend_workers import DRAINED, clear_full, hand_back_full, hand_back_unstarted, renew_leases
from attune.operations.lines.pass_slots_on import Taker, pass_slots_on
from attune.operations.start_executions import Claimant, Started, start_executions
from attune.runtime.clock import draw, jittered_backoff, monotonic
from attune.runtime.failpoints import afailpoint
from attune.storage import executions
from attune.storage.database import Database, may_work_later
from attune.storage.tx import Commit, Tx
from attune.worker.attempts import Attempts, Entry, Stage

# At this share of the lease an attempt kills itself; the rest is the margin before anybody else may start it.
USABLE_SHARE: Final = 2 / 3
# One transaction claims at most this many; the rest waits for the next one.
CLAIMED_MAX: Final = 500
# Pinned work has to wait here for a slot. Beyond this many it is left to the heartbeat to name it again.
PINNED_WAITING_MAX: Final = 1000
# What waits here for a slot longer than this share of the lease, a heartbeat, has long actions before it.
PATIENCE_SHARE: Final = 1 / 3
# Each pass hands back hundreds; more passes than this means that something keeps placing on a drained worker.
HAND_BACK_PASSES_MAX: Final = 100
RETRY_FIRST_SECONDS: Final = 0.05
RETRY_CEILING_SECONDS: Final = 2.0


@dataclass(slots=True, kw_only=True)
class _Batch:
    """What one transaction decides about; acted on when its outcome is known."""

    claimed: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)
    returned: list[Entry] = field(default_factory=list)
    # By attempt, not by execution: a stale dispatch of an earlier attempt may be part of the same batch.
    started: dict[Item, Started] = field(default_factory=dict)
    # Whether claims that did not happen wait for another try, because no message will come back for them.
    keeps: bool = False

    def add(self, started: Iterable[Started]) -> None:
        for each in started:
            self.started[each.startable.execution_id, each.startable.attempt] = each


class Claims:
    """Everything that leads to a start goes through here, and through the table of attempts."""

    def __init__(
        self,
        *,
        database: Database,
        attempts: Attempts,
        claimant: Claimant,
        begin: Callable[[Entry], None],
        slot_freed: asyncio.Event,
    ) -> None:
        self._database = database
        self._attempts = attempts
        self._claimant = claimant
        self._begin = begin
        self._actor = claimant.name
        self._closed = False
        self._marked_full = False
        self._drained = False
        self._wake = slot_freed
        self._log = structlog.get_logger()

    async def take_dispatches(self, tx: Tx, messages: Sequence[Message]) -> None:
        """Handle dispatches in the transaction that acknowledges them; what was claimed begins after the commit."""
        items = dict.fromkeys(
            item for message in messages if message.type == MessageType.EXECUTION_DISPATCHED for item in message.items
        )
        # A draining worker leaves what arrives late to its hand-back, which reads the database.
        new = [] if self._closed else [item for item in items if item not in self._attempts]
        if not new:
            return
        batch = _Batch()
        tx.at_end(partial(self._act, batch, tx.began_at))
        here = max(0, self._attempts.free)
        batch.claimed = [self._attempts.enter(item, Stage.CLAIMING) for item in new[:here][:CLAIMED_MAX]]
        batch.waiting = [self._attempts.enter(item, Stage.WAITING) for item in new[:here][CLAIMED_MAX:]]
        if len(new) > here:
            await self._let_wait_or_return(tx, batch, new[here:])
        await self._claim(tx, batch)

    async def take_next(self, tx: Tx, ended: Sequence[int]) -> None:
        """Give the slots of ended executions to the next in their lines, and claim what is placed here for it.

        Everything a slot needs to go from one to the next is then in one transaction. A dispatch that this worker
        would send to itself is not sent; what is placed elsewhere, or finds no slot here, goes the usual way.
        """
        if self._closed:
            return
        batch = _Batch()
        tx.at_end(partial(self._act, batch, tx.began_at))

        def reserve(items: Sequence[Item]) -> list[Item]:
            # One that is here already was once claimed without an answer; it comes by a dispatch, and is settled first.
            new = [item for item in items if item not in self._attempts]
            here = new[: max(0, min(self._attempts.free, CLAIMED_MAX))]
            batch.claimed += [self._attempts.enter(item, Stage.CLAIMING) for item in here]
            return here

        taker = Taker(claimant=self._claimant, reserve=reserve)
        batch.add(await pass_slots_on(tx, ended, taker=taker, draw=draw))

    def offer(self, items: Iterable[Item]) -> None:
        """Placed here according to the database, and no message came: as good as a dispatch."""
        for item in sorted(items):
            room = self._attempts.free + self._attempts.buffer - self._attempts.waiting
            if not self._closed and item not in self._attempts and room > 0:
                self._attempts.enter(item, Stage.WAITING)
        self.wake()

    def wake(self) -> None:
        """A slot may be free, or a claim unsettled."""
        self._wake.set()

    def empty(self) -> None:
        """Somebody drains this worker: give back what was not started, if that was not done for us."""
        self._drained = True
        self.wake()

    def announce_room(self) -> None:
        """This worker was given up and is there again: its room is told as after a full mark."""
        self._marked_full = True
        self.wake()

    def close(self) -> None:
        """Claim nothing more; what waits is left to the hand-back."""
        self._closed = True
        for entry in self._attempts.in_stage(Stage.WAITING):
            self._attempts.drop(entry)

    async def tend(self) -> None:
        """Claim what waits as slots become free, settle what is uncertain, take back the `full` mark. For ever."""
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.settle()
                await self._give_back_all()
                await self._claim_waiting()
                await self._give_back_overdue()
                await self._clear_mark()
                failures = 0
            except Exception as error:
                if not may_work_later(error):
                    raise
                failures += 1
                self._wake.set()
                await asyncio.sleep(
                    jittered_backoff(
                        failures, first_seconds=RETRY_FIRST_SECONDS, ceiling_seconds=RETRY_CEILING_SECONDS, drawn=draw()
                    )
                )

    async def settle(self) -> None:
        """Find out whether claims without an answer were committed, and run those that were.

        Claiming again waits for the earlier transaction's row locks, so the answer is final: newly claimed, or
        claimed before (then the lease can be renewed), or not ours. A plain look could be overtaken by the commit.
        """
        unsettled = self._attempts.in_stage(Stage.UNSETTLED)[:CLAIMED_MAX]
        if not unsettled:
            return
        await afailpoint("worker.settle.before_tx")
        async with self._database.transaction() as tx:
            again = await start_executions(tx, [entry.key for entry in unsettled], claimant=self._claimant)
            pulse = await renew_leases(
                tx,
                [entry.held for entry in unsettled],
                instance=self._claimant.instance,
                lease_seconds=self._claimant.lease_seconds,
            )
        ours = {(item.execution_id, item.attempt) for item in pulse.attempts if item.known}
        started = {(item.startable.execution_id, item.startable.attempt): item for item in again}
        for entry in unsettled:
            # Claimed just now, perhaps under another lease than in vain before; or by the earlier one after all.
            settled = started.get(entry.key) or (entry.started if entry.key in ours else None)
            if entry.stage is not Stage.UNSETTLED:
                continue  # Another call has settled it meanwhile.
            if settled is not None:
                self._run(entry, settled, tx.began_at)
            else:
                self._attempts.drop(entry)

    async def _let_wait_or_return(self, tx: Tx, batch: _Batch, items: Sequence[Item]) -> None:
        """Short native actions may wait here for a moment; everything else finds a slot sooner elsewhere."""
        patient = await executions.list_patient(tx, [item[0] for item in items])
        for item in items:
            if item in self._attempts:
                continue
            pinned = patient.get(item[0])
            if pinned is None or self._attempts.waiting >= (PINNED_WAITING_MAX if pinned else self._attempts.buffer):
                batch.returned.append(self._attempts.enter(item, Stage.RETURNING))
            else:
                batch.waiting.append(self._attempts.enter(item, Stage.WAITING))
        if batch.returned:
            returned = [entry.key for entry in batch.returned]
            await hand_back_full(tx, returned, instance=self._claimant.instance, actor=self._actor)

    async def _claim(self, tx: Tx, batch: _Batch) -> None:
        if not batch.claimed:
            return
        await afailpoint("worker.claim.before")
        keys = [entry.key for entry in batch.claimed]
        batch.add(await start_executions(tx, keys, claimant=self._claimant))
        await afailpoint("worker.claim.before_commit")

    def _act(self, batch: _Batch, began_at: float, commit: Commit) -> None:
        """The transaction is over: begin what is ours, forget what is not."""
        for entry in batch.claimed:
            started = batch.started.get(entry.key)
            if commit is Commit.ROLLED_BACK and batch.keeps and not self._closed:
                self._attempts.move(entry, Stage.WAITING)
            elif commit is Commit.ROLLED_BACK or started is None:
                self._attempts.drop(entry)
            elif commit is Commit.DONE:
                self._run(entry, started, began_at)
            else:
                entry.started = started
                self._attempts.move(entry, Stage.UNSETTLED)
        for entry in batch.returned if commit is Commit.DONE else [*batch.returned, *batch.waiting]:
            self._attempts.drop(entry)
        self._marked_full = self._marked_full or (bool(batch.returned) and commit is not Commit.ROLLED_BACK)
        self.wake()

    def _run(self, entry: Entry, started: Started, sent_at: float) -> None:
        entry.started = started
        entry.good_until = sent_at + self._claimant.lease_seconds * USABLE_SHARE
        self._attempts.move(entry, Stage.RUNNING)
        self._begin(entry)

    async def _claim_waiting(self) -> None:
        while entries := self._attempts.in_stage(Stage.WAITING)[: max(0, min(self._attempts.free, CLAIMED_MAX))]:
            async with self._database.transaction() as tx:
                # Some may have been dropped while this waited for a connection.
                batch = _Batch(claimed=[entry for entry in entries if entry.stage is Stage.WAITING], keeps=True)
                tx.at_end(partial(self._act, batch, tx.began_at))
                for entry in batch.claimed:
                    self._attempts.move(entry, Stage.CLAIMING)
                await self._claim(tx, batch)

    async def _give_back_all(self) -> None:
        """The rest of a drain; no placement follows it, so this comes to an end."""
        for _ in range(HAND_BACK_PASSES_MAX):
            if not self._drained or self._closed:
                return
            async with self._database.transaction() as tx:
                self._drained = bool(
                    await hand_back_unstarted(tx, instance=self._claimant.instance, actor=self._actor, reason=DRAINED)
                )

    async def _give_back_overdue(self) -> None:
        """Long actions hold every slot: what waits behind them is better off elsewhere. Pinned work has to wait."""
        since = monotonic() - self._claimant.lease_seconds * PATIENCE_SHARE
        late = [entry for entry in self._attempts.in_stage(Stage.WAITING) if entry.since < since]
        if not late or self._closed:
            return
        async with self._database.transaction() as tx:
            pinned = await executions.list_patient(tx, [entry.key[0] for entry in late])
            batch = _Batch(
                returned=[entry for entry in late if entry.stage is Stage.WAITING and not pinned.get(entry.key[0])]
            )
            if not batch.returned:
                return
            tx.at_end(partial(self._act, batch, tx.began_at))
            for entry in batch.returned:
                self._attempts.move(entry, Stage.RETURNING)
            returned = [entry.key for entry in batch.returned]
            await hand_back_full(tx, returned, instance=self._claimant.instance, actor=self._actor)

    async def _clear_mark(self) -> None:
        if not self._marked_full or self._closed or self._attempts.free <= 0:
            return
        # Before the transaction: a mark that is set while it runs must be cleared after it.
        self._marked_full = False
        try:
            async with self._database.transaction() as tx:
                await clear_full(tx, instance=self._claimant.instance)
        except BaseException:
            self._marked_full = True
            raise
