"""The one consumer loop: take a batch, handle it in a transaction, commit, acknowledge; and the fate of what fails.

The family of an error decides: `Conflict` drops the message, `Invalid` parks it, what may work later is tried again
with pauses, and everything else is the fault of one message of the batch, found by running them one by one.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from attune.domain.errors import Conflict, Invalid
from attune.domain.messages import Message, MessageType
from attune.runtime.clock import draw, jittered_backoff
from attune.runtime.failpoints import afailpoint
from attune.runtime.metrics import Metrics
from attune.storage import dead_letters, outbox
from attune.storage.database import Database, may_work_later
from attune.storage.outbox import DOUBLINGS_MAX
from attune.storage.tx import Tx
from attune.transport.limits import Limits
from attune.transport.protocol import Source

Handler = Callable[[Tx, Sequence[Message]], Awaitable[None]]

# A batch that lost a race is tried again this often; then its messages run one by one, each in turn.
RETRIES_MAX = 5
RETRY_FIRST_SECONDS = 0.02
RETRY_CEILING_SECONDS = 2.0
# Before it is parked, a message of an unknown type may fail this many times as often.
UNKNOWN_TYPE_FACTOR = 2
# Of an error, a dead letter keeps this much.
ERROR_CHARACTERS_MAX = 2000


class Reason(StrEnum):
    """Why a message was parked."""

    INVALID = "invalid"
    UNKNOWN_TYPE = "unknown type"
    FAILED = "failed too often"
    LOST = "its process died too often"


class UnknownType(Exception):
    """No handler of this version knows the type; a newer replica may."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the messages of one consumer, for its metrics."""

    handled: int = 0
    conflicts: int = 0
    retried: int = 0
    failed: int = 0
    # By reason.
    parked: Counter[str] = field(default_factory=Counter)
    # Where it is published, if anywhere.
    metrics: Metrics | None = None

    def note_conflict(self) -> None:
        self.conflicts += 1
        if self.metrics:
            self.metrics.conflicts.inc()

    def note_parked(self, reason: Reason) -> None:
        self.parked[reason] += 1
        if self.metrics:
            self.metrics.dead_letters.labels(reason=reason).inc()


async def consume(
    database: Database,
    source: Source,
    handler: Handler,
    limits: Limits,
    *,
    tally: Tally | None = None,
    types: Collection[str] = frozenset(MessageType),
) -> None:
    """Consume until cancelled."""
    consumer = _Consumer(database, source, handler, limits, tally=tally or Tally(), types=types)
    await consumer.run()


class _Consumer:
    def __init__(
        self,
        database: Database,
        source: Source,
        handler: Handler,
        limits: Limits,
        *,
        tally: Tally,
        types: Collection[str],
    ) -> None:
        self._database = database
        self._source = source
        self._handler = handler
        self._limits = limits
        self._tally = tally
        self._types = types
        self._retries = 0
        self._log = structlog.get_logger()

    async def run(self) -> None:
        while True:
            await self._source.wait()
            try:
                await self._run_batch()
                await self._run_suspect()
            except Exception as error:
                if not may_work_later(error):
                    raise
                await self._recover(error, self._retries)

    async def _run_batch(self) -> None:
        taken: list[Message] = []
        try:
            async with self._database.transaction() as tx:
                taken = await self._source.take(tx, self._limits.batch_max)
                if taken:
                    await self._call(tx, taken)
        except Exception as error:
            if not taken:
                raise
            if may_work_later(error) and self._retries < RETRIES_MAX:
                self._retries += 1
                await self._source.give_back(taken)
                raise
            await self._judge(taken, error)
        else:
            await self._acknowledge(taken)
        self._retries = 0

    async def _run_suspect(self) -> None:
        """A message that failed before is alone, and its delivery is committed before its handler may kill us."""
        message = await self._source.take_suspect()
        if message is None:
            return
        if message.deliveries > self._deliveries_max(message):
            await self._park(message, Reason.LOST, "")
        else:
            await afailpoint("consume.counted.before_tx")
            await self._run_alone(message, counted=True)

    async def _judge(self, messages: Sequence[Message], error: Exception) -> None:
        try:
            await self._find_the_culprit(messages, error)
        except Exception:
            # The database was lost meanwhile. A broker would wait for ever for those whose fate is still open.
            await self._source.give_back(messages)
            raise

    async def _find_the_culprit(self, messages: Sequence[Message], error: Exception) -> None:
        if len(messages) == 1:
            await self._decide_fate(messages[0], error, counted=False)
            return
        self._log.warning("batch.failed", messages=len(messages), error=_say(error))
        for message in messages:
            await self._run_alone(message, counted=False)

    async def _run_alone(self, message: Message, *, counted: bool) -> None:
        try:
            async with self._database.transaction() as tx:
                if not await self._source.retake(tx, message):
                    return
                await self._call(tx, [message])
        except Exception as error:  # noqa: BLE001  its family decides the message's fate
            await self._decide_fate(message, error, counted=counted)
        else:
            await self._acknowledge([message])

    async def _call(self, tx: Tx, messages: Sequence[Message]) -> None:
        await afailpoint("consume.received.before_tx")
        for message in messages:
            if message.type not in self._types:
                raise UnknownType(message.type)
        await self._handler(tx, messages)
        await afailpoint("consume.before_commit")

    async def _acknowledge(self, messages: Sequence[Message]) -> None:
        if messages:
            await afailpoint("consume.after_commit_before_ack")
            await self._source.settle(messages)
            self._tally.handled += len(messages)

    async def _decide_fate(self, message: Message, error: Exception, *, counted: bool) -> None:
        if isinstance(error, Conflict):
            await self._drop(message)
        elif isinstance(error, Invalid):
            await self._park(message, Reason.INVALID, _say(error))
        elif may_work_later(error):
            await self._recover(error, self._retries)
            await self._try_again_later(message, counted=counted)
        else:
            await self._count_failure(message, error, counted=counted)

    async def _drop(self, message: Message) -> None:
        """The world moved on without it."""
        async with self._database.transaction() as tx:
            await self._source.retake(tx, message)
        await self._source.settle([message])
        self._tally.note_conflict()

    async def _try_again_later(self, message: Message, *, counted: bool) -> None:
        """It is not the message's fault, so it is never parked for this, however long it takes."""
        if not counted:
            await self._source.give_back([message])
            return
        async with self._database.transaction() as tx:
            await outbox.uncount(tx, message.id, delay_seconds=self._limits.backoff_seconds)

    async def _count_failure(self, message: Message, error: Exception, *, counted: bool) -> None:
        deliveries = message.deliveries if counted else message.deliveries + 1
        unknown = isinstance(error, UnknownType)
        self._tally.failed += 1
        self._log.warning(
            "message.failed",
            message_id=message.id,
            topic=message.topic,
            type=message.type,
            deliveries=deliveries,
            exc_info=None if unknown else error,
        )
        if deliveries >= self._deliveries_max(message):
            await self._park(message, Reason.UNKNOWN_TYPE if unknown else Reason.FAILED, _say(error))
        else:
            first = self._limits.unknown_type_seconds if unknown else self._limits.backoff_seconds
            # The jitter keeps an old replica from always being the first to look.
            doubled = first * 2.0 ** min(deliveries - 1, DOUBLINGS_MAX)
            await self._put_off(message, doubled * (1 + draw() / 2), counted=counted)

    def _deliveries_max(self, message: Message) -> int:
        """A type we do not know gets the time an upgrade takes; with the default limits that is most of an hour."""
        known = message.type in self._types
        return self._limits.deliveries_max * (1 if known else UNKNOWN_TYPE_FACTOR)

    async def _put_off(self, message: Message, delay_seconds: float, *, counted: bool) -> None:
        async with self._database.transaction() as tx:
            if counted:
                await outbox.put_off(tx, [message.id], delay_seconds=delay_seconds)
            else:
                await self._source.put_off(tx, message, delay_seconds=delay_seconds)
        await afailpoint("consume.put_off.before_ack")
        await self._source.settle([message])

    async def _park(self, message: Message, reason: Reason, error: str) -> None:
        async with self._database.transaction() as tx:
            if not await self._source.retake(tx, message):
                return
            await dead_letters.insert(tx, message, reason=reason, error=error)
        self._tally.note_parked(reason)
        self._log.error("message.parked", message_id=message.id, topic=message.topic, reason=reason, error=error)
        await afailpoint("dlq.parked.before_ack")
        await self._source.settle([message])

    async def _recover(self, error: Exception, retries: int) -> None:
        """Pause; and while the database does not answer, take nothing more."""
        self._tally.retried += 1
        self._log.info("consumer.retrying", error=_say(error), retries=retries)
        failures = max(retries, 1)
        while True:
            await asyncio.sleep(
                jittered_backoff(
                    failures, first_seconds=RETRY_FIRST_SECONDS, ceiling_seconds=RETRY_CEILING_SECONDS, drawn=draw()
                )
            )
            if await self._database.answers():
                return
            failures += 1


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
