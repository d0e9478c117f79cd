"""Keeps the leases of what runs here, on a connection of its own, and ends what can no longer be kept.

Two clocks guard every attempt: the database's, by which others may take it over when its lease and a grace have run
out, and this process's own, by which it is killed well before that.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from attune.domain.messages import Item
from attune.operations.attend_workers import Pulse, renew_leases
from attune.operations.start_executions import Claimant
from attune.runtime.clock import monotonic
from attune.runtime.failpoints import afailpoint
from attune.runtime.metrics import Metrics
from attune.runtime.supervise import CannotStart
from attune.storage.database import may_work_later
from attune.storage.own_connection import OwnConnection
from attune.worker.attempts import Attempts, Entry, Stage
from attune.worker.claims import USABLE_SHARE, Claims
from attune.worker.runners.protocol import StopReason

# A heartbeat that failed is repeated after this share of the interval.
RETRY_SHARE: Final = 0.2
# The own clock is looked at this often within one interval, and when an attempt's time is up.
LOOKS_PER_INTERVAL: Final = 4
LOOK_SECONDS_MIN: Final = 0.01


class NameTaken(CannotStart):
    """Another process registered under this worker's name; this one must not run anything any more."""


class Heartbeat:
    """The worker's pulse: what is renewed, what is cancelled, what is lost."""

    def __init__(
        self,
        *,
        connection: OwnConnection,
        attempts: Attempts,
        claims: Claims,
        claimant: Claimant,
        interval_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._connection = connection
        self._attempts = attempts
        self._claims = claims
        self._claimant = claimant
        self._interval = interval_seconds
        self._metrics = metrics
        # As the database had it when it last answered.
        self._status = "active"
        self._now = asyncio.Event()
        # What the last answer named and this process did not know; only what two in a row name is no coincidence.
        self._unstarted: set[Item] = set()
        self._strangers: set[Item] = set()
        self._log = structlog.get_logger()

    def beat_now(self) -> None:
        self._now.set()

    async def beat_for_ever(self) -> None:
        """Renew every interval, and sooner after a failure; raises NameTaken."""
        failures = 0
        while True:
            try:
                await self.beat()
                failures = 0
            except Exception as error:
                if not may_work_later(error):
                    raise
                failures += 1
                self._log.warning("heartbeat.failed", failures=failures, error=f"{type(error).__name__}: {error}")
            await self._pause(self._interval * (RETRY_SHARE if failures else 1))

    async def beat(self) -> None:
        """One heartbeat."""
        await afailpoint("lease.renew")
        entries = self._attempts.leased()
        async with self._connection.transaction(timeout_seconds=self._interval) as tx:
            pulse = await renew_leases(
                tx,
                [entry.held for entry in entries],
                instance=self._claimant.instance,
                lease_seconds=self._claimant.lease_seconds,
            )
        await afailpoint("lease.renewed.before_answer", unknown=ConnectionResetError)
        self._apply(entries, pulse, tx.began_at)

    def check_clocks(self) -> float:
        """Kill every attempt whose own clock has run out; returns the seconds until the next one's does."""
        now = monotonic()
        nearest = self._interval
        for entry in self._attempts.in_stage(Stage.RUNNING):
            if now >= entry.good_until:
                if entry.stop.reason not in (StopReason.LEASE_LOST, StopReason.FENCED):
                    self._log.error("attempt.lease_lost", execution_id=entry.key[0], attempt=entry.key[1])
                entry.stop.request(StopReason.LEASE_LOST)
            else:
                nearest = min(nearest, entry.good_until - now)
        return nearest

    async def watch_clocks(self) -> None:
        """For ever."""
        while True:
            nearest = self.check_clocks()
            await asyncio.sleep(max(LOOK_SECONDS_MIN, min(nearest, self._interval / LOOKS_PER_INTERVAL)))

    def continue_after_pause(self) -> None:
        """The process was stopped and goes on: before anything else, look at the clocks and ask the database."""
        self.check_clocks()
        self.beat_now()

    def _apply(self, entries: Sequence[Entry], pulse: Pulse, sent_at: float) -> None:
        if pulse.status is None:
            raise NameTaken(f"another worker registered as {self._claimant.name!r}; every worker needs its own name")
        renewed = {(item.execution_id, item.attempt): item for item in pulse.attempts if item.known}
        for entry in entries:
            answer = renewed.get(entry.key)
            if answer is not None:
                entry.good_until = max(entry.good_until, sent_at + self._claimant.lease_seconds * USABLE_SHARE)
                if answer.cancel_requested:
                    entry.stop.request(StopReason.CANCELLED)
            elif entry.stage is Stage.RUNNING:
                # Not for one that ended meanwhile: the answer to its own report decides.
                self._fence(entry)
        self._consider_unknown(pulse)
        self._follow(pulse)

    def _follow(self, pulse: Pulse) -> None:
        """Somebody may have drained this worker, or let it back in, or given it up for lost."""
        if pulse.revived:
            self._claims.announce_room()
        if pulse.status in (None, self._status):
            return
        self._log.info("worker.status", status=pulse.status, before=self._status)
        self._status = pulse.status
        if pulse.status == "draining":
            self._claims.empty()

    def _fence(self, entry: Entry) -> None:
        self._metrics.fenced_writes.inc()
        self._log.warning("attempt.fenced", execution_id=entry.key[0], attempt=entry.key[1], at="heartbeat")
        entry.stop.request(StopReason.FENCED)

    def _consider_unknown(self, pulse: Pulse) -> None:
        unstarted = self._attempts.unknown(
            (item.execution_id, item.attempt) for item in pulse.attempts if not item.known and not item.started
        )
        strangers = self._attempts.unknown(
            (item.execution_id, item.attempt) for item in pulse.attempts if not item.known and item.started
        )
        # Named once, its message may still be on the way; named twice, it is lost.
        self._claims.offer(unstarted & self._unstarted)
        # Started in our name, but nothing here knows it. It may have run already and its report been given up, so
        # running it could be a second start of the same attempt. Nobody renews it: it expires and is rescued.
        for execution_id, attempt in strangers & self._strangers:
            self._log.error("attempt.left_to_expire", execution_id=execution_id, attempt=attempt)
        self._unstarted, self._strangers = unstarted, strangers

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._now.wait()
        except TimeoutError:
            pass
        self._now.clear()
