"""A process may die at any step between commit and acknowledgement: nothing is lost, nothing is done twice."""

from __future__ import annotations

import asyncio
import signal

import pytest

from attune.domain.messages import MessageType
from attune.storage.database import Database
from tests.transport.children import child
from tests.transport.station import EVENTS, count, leave_effect, station, wait_for_effects, wait_for_rows

CONSUMING = ("consume.received.before_tx", "consume.before_commit", "consume.after_commit_before_ack")
PUBLISHING = ("publish.sent.before_confirm", "publish.confirmed.before_outbox_delete")
MESSAGES = 20


@pytest.mark.parametrize("point", CONSUMING)
async def test_dying_while_consuming_loses_nothing(
    database: Database, database_url: str, broker_url: str, effect_table: None, point: str
) -> None:
    await die_at(point, database, database_url, broker_url)


@pytest.mark.parametrize("point", PUBLISHING)
async def test_dying_while_publishing_loses_nothing(
    database: Database, database_url: str, rabbitmq_url: str, effect_table: None, point: str
) -> None:
    """On RabbitMQ only: where the outbox is the queue nothing is published."""
    await die_at(point, database, database_url, rabbitmq_url)


async def die_at(point: str, database: Database, database_url: str, broker_url: str) -> None:
    """A process dies at the third passage of a point; the next one finishes what it left."""
    for number in range(MESSAGES):
        async with database.transaction() as tx:
            tx.announce(MessageType.EVENT_CREATED, MessageType.EVENT_CREATED, [(number, 0)])
    async with child("work", database_url, broker_url, failpoints=f"{point}=kill@3") as process:
        async with asyncio.timeout(30):
            assert await process.wait() == -signal.SIGKILL
    assert await count(database, "effect") < MESSAGES
    async with station(database_url, broker_url) as here, here.consuming(EVENTS, leave_effect):
        assert await wait_for_effects(database, MESSAGES) == list(range(MESSAGES))
        await wait_for_rows(database, "outbox", 0)
    assert await count(database, "dead_letter") == 0
