"""Sends committed messages: persistent, mandatory, many at a time, each bounded in time.

The outbox row is deleted only when the broker has confirmed the message without returning it. Whatever goes wrong
here leaves the row where it is, for the relay of any replica.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from enum import StrEnum

import aio_pika
import structlog
from aio_pika.abc import AbstractConnection, AbstractExchange
from aio_pika.exceptions import PublishError

from attune.domain.errors import Invalid
from attune.domain.messages import Broadcast, Message
from attune.runtime.clock import draw, monotonic
from attune.runtime.failpoints import afailpoint
from attune.storage import dead_letters, outbox
from attune.storage.database import Database, may_work_later
from attune.transport import codec
from attune.transport.rabbitmq.declare import declare_exchanges, exchange_types
from attune.transport.rabbitmq.link import BROKER_ERRORS, Link, broker_calls
from attune.transport.rabbitmq.options import RabbitOptions, ReturnedDispatch
from attune.transport.topology import NOTIFICATIONS, exchange_of, is_dispatch

# So many publishes wait for their confirmation at once.
WINDOW = 300
# What a burst commits beyond this is not published from memory; the relay finds it.
WAITING_MAX = 10_000
RELAY_BATCH_MAX = 500
# Confirmed rows are gathered this long, so that one statement deletes many.
DELETE_GATHER_SECONDS = 0.05
DELETE_BATCH_MAX = 1000
DELETE_PAUSE_SECONDS = 1.0


class Outcome(StrEnum):
    """What became of one publish."""

    CONFIRMED = "confirmed"
    RETURNED = "returned"
    FAILED = "failed"


class Publisher:
    """One process's way from its outbox to the broker."""

    def __init__(
        self, database: Database, options: RabbitOptions, *, on_returned_dispatch: ReturnedDispatch | None
    ) -> None:
        self._database = database
        self._options = options
        self._on_returned_dispatch = on_returned_dispatch
        self.link = Link(options, purpose="publish", prepare=self._prepare)
        self._exchanges: dict[str, AbstractExchange] = {}
        self._numbers = itertools.count()
        self._window = asyncio.Semaphore(WINDOW)
        self._waiting: deque[Message] = deque()
        # What is waiting or under way here: our own relay has nothing to take over of that.
        self._at_hand: set[int] = set()
        self._any_waiting = asyncio.Event()
        self._untold: dict[str, int] = {}
        self._any_untold = asyncio.Event()
        self._confirmed_at = 0.0
        self._confirmed: set[int] = set()
        self._any_confirmed = asyncio.Event()
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Publish, relay and delete until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.link.run(), name="rabbitmq-publish-link")
            tasks.create_task(self._publish_waiting(), name="rabbitmq-publish")
            tasks.create_task(self._tell_untold(), name="rabbitmq-tell")
            tasks.create_task(self._relay(), name="rabbitmq-relay")
            tasks.create_task(self._delete_confirmed(), name="rabbitmq-delete")

    def submit(self, messages: Sequence[Message]) -> None:
        """Publish these soon, from memory; those that are delayed, or too many, are left to the relay."""
        if not self.link.up.is_set():
            return
        for message in messages:
            if message.not_before <= message.created and len(self._waiting) < WAITING_MAX:
                self._waiting.append(message)
                self._at_hand.add(message.id)
                self._any_waiting.set()

    def tell(self, broadcasts: Sequence[Broadcast]) -> None:
        """Call everybody who listens, soon; nobody waits for it and nothing depends on it."""
        for broadcast in broadcasts:
            self._untold[broadcast.entity] = broadcast.revision
            self._any_untold.set()

    async def publish(self, message: Message) -> Outcome:
        """Send one message and wait until the broker has it."""
        letter = self._letter(message)
        exchange = exchange_of(message.topic, dead_letter_exchange=self._options.dead_letter_exchange)
        try:
            async with asyncio.timeout(self._options.publish_seconds):
                with broker_calls():
                    await self._exchanges[exchange].publish(letter, routing_key=message.topic)
                await afailpoint("publish.confirmed.before_answer", unknown=TimeoutError)
        except PublishError:
            return Outcome.RETURNED
        except Exception as error:  # noqa: BLE001  the client raises anything while it closes, and the row is safe
            self._log.info("publish.failed", message_id=message.id, topic=message.topic, error=repr(error))
            self._lose_if_stuck(error)
            return Outcome.FAILED
        self._confirmed_at = monotonic()
        return Outcome.CONFIRMED

    def _lose_if_stuck(self, error: Exception) -> None:
        """A broker that confirms nothing any more is as good as gone; one that is only slow is left to work."""
        if isinstance(error, TimeoutError) and monotonic() - self._confirmed_at > self._options.publish_seconds:
            self.link.lose()

    def _letter(self, message: Message) -> aio_pika.Message:
        return aio_pika.Message(
            codec.encode(message),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            # Unique on the channel, because the client finds the publish of a returned message by it.
            message_id=f"{message.id}.{next(self._numbers)}",
            correlation_id=str(message.id),
            type=message.type,
            timestamp=message.created,
            app_id="attune",
        )

    async def _prepare(self, connection: AbstractConnection) -> None:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await declare_exchanges(channel, dead_letter_exchange=self._options.dead_letter_exchange)
        self._exchanges = {
            name: await channel.get_exchange(name, ensure=False)
            for name in exchange_types(self._options.dead_letter_exchange)
        }
        self.link.watch(channel)

    async def _publish_waiting(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._any_waiting.wait()
                while self._waiting:
                    await self._window.acquire()
                    sending = tasks.create_task(self._carry(self._waiting.popleft()))
                    sending.add_done_callback(lambda _: self._window.release())
                self._any_waiting.clear()

    async def _tell_untold(self) -> None:
        while True:
            await self._any_untold.wait()
            self._any_untold.clear()
            untold, self._untold = self._untold, {}
            for entity, revision in untold.items():
                letter = aio_pika.Message(f"{entity} {revision}".encode())
                try:
                    async with asyncio.timeout(self._options.publish_seconds):
                        with broker_calls():
                            await self._exchanges[NOTIFICATIONS].publish(letter, "", mandatory=False)
                except (KeyError, *BROKER_ERRORS) as error:
                    self._log.info("broadcast.failed", entity=entity, error=repr(error))

    async def _carry(self, message: Message) -> None:
        """A message that cannot be sent for a reason of its own must not keep the others from being sent."""
        try:
            try:
                await self._send(message)
            except Invalid as error:
                await self._park(message, error.message)
        except Exception:  # noqa: BLE001  the top of one message's way; its row stays for the relay
            self._log.exception("publish.crashed", message_id=message.id, topic=message.topic)
        finally:
            self._at_hand.discard(message.id)

    async def _send(self, message: Message) -> None:
        """Publish one message and do what its outcome asks for."""
        await afailpoint("publish.before_send")
        sending = asyncio.ensure_future(self.publish(message))
        try:
            await afailpoint("publish.sent.before_confirm")
            outcome = await sending
        finally:
            sending.cancel()
        if outcome is Outcome.CONFIRMED:
            await afailpoint("publish.confirmed.before_outbox_delete")
            self._delete_soon(message)
        elif outcome is Outcome.RETURNED:
            await self._take_back(message)

    async def _take_back(self, message: Message) -> None:
        """The broker has no queue for it: un-place a dispatch, let everything else rest."""
        await afailpoint("publish.returned.before_tx")
        self._log.warning("publish.returned", message_id=message.id, topic=message.topic)
        if self._on_returned_dispatch and is_dispatch(message.topic) and await self._on_returned_dispatch(message):
            self._delete_soon(message)
            return
        async with self._database.transaction() as tx:
            await outbox.put_off(tx, [message.id], delay_seconds=self._options.returned_seconds)

    async def _park(self, message: Message, error: str) -> None:
        async with self._database.transaction() as tx:
            if await outbox.delete(tx, message.id):
                await dead_letters.insert(tx, message, reason="cannot be sent", error=error)

    async def _relay(self) -> None:
        """Take over what was committed and not sent, by a process that died, or a delay that is over."""
        while True:
            await self.link.up.wait()
            if claimed := await self._claim_overdue():
                await afailpoint("relay.claimed.before_send")
            known = self._at_hand | self._confirmed
            mine = [message for message in claimed if message.id not in known]
            self._at_hand.update(message.id for message in mine)
            await asyncio.gather(*(self._carry_in_window(message) for message in mine))
            if len(claimed) < RELAY_BATCH_MAX:
                await asyncio.sleep(self._options.relay_interval_seconds * (0.5 + draw()))

    async def _carry_in_window(self, message: Message) -> None:
        async with self._window:
            await self._carry(message)

    async def _claim_overdue(self) -> list[Message]:
        try:
            async with self._database.transaction() as tx:
                return await outbox.claim_overdue(
                    tx,
                    limit=RELAY_BATCH_MAX,
                    overdue_seconds=self._options.relay_overdue_seconds,
                    claim_seconds=self._options.relay_claim_seconds,
                )
        except Exception as error:
            if not may_work_later(error):
                raise
            self._log.warning("relay.interrupted", error=str(error))
            return []

    def _delete_soon(self, message: Message) -> None:
        self._confirmed.add(message.id)
        self._any_confirmed.set()

    async def _delete_confirmed(self) -> None:
        """A crash in between only means that something is sent twice."""
        while True:
            await self._any_confirmed.wait()
            await asyncio.sleep(DELETE_GATHER_SECONDS)
            batch = list(itertools.islice(self._confirmed, DELETE_BATCH_MAX))
            try:
                async with self._database.transaction() as tx:
                    await outbox.delete_many(tx, batch)
            except Exception as error:
                if not may_work_later(error):
                    raise
                await asyncio.sleep(DELETE_PAUSE_SECONDS)
                continue
            self._confirmed.difference_update(batch)
            if not self._confirmed:
                self._any_confirmed.clear()
