"""What somebody else puts among RabbitMQ's dead letters is parked and told, and the queue goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aio_pika
import msgspec
import pytest
from aio_pika.abc import AbstractChannel
from structlog.testing import capture_logs

from attune.domain.messages import MessageType, dispatch_topic
from attune.runtime.metrics import build_metrics
from attune.storage.database import Database
from attune.transport.codec import ENVELOPE_BYTES_MAX, Envelope
from attune.transport.limits import Limits
from attune.transport.topology import dead_letter_queue, worker_queues
from tests.transport.station import build_transport
from tests.witness.arrange import make_action, make_worker, request, statuses
from tests.witness.executors import executor
from tests.witness.lines import nothing_is_broken
from tests.witness.waiting import until

pytestmark = pytest.mark.rabbitmq

QUEUE = dead_letter_queue(ttl_ms=86_400_000).name
TTL_SECONDS = 0.5
NOBODY = 999
# A type that nobody knows is given the time of an upgrade; here a moment.
HASTY = Limits(deliveries_max=1, unknown_type_seconds=0.01)
UNKNOWN = ("execution.teleported", MessageType.EXECUTION_COMPLETED)


def unreadable(execution: int) -> list[bytes]:
    """No JSON, JSON of another shape, and what another program would have written."""
    return [
        b"",
        b"\xff\x00 this is no text",
        b"{",
        b"null",
        b"[[1, 2], 3]",
        b'{"execution_id": %d}' % execution,
        b'{"message_type": "ExecutionRequested", "payload": {"execution_id": %d}}' % execution,
        b"[" * 10_000,
        b'"' + b"x" * ENVELOPE_BYTES_MAX + b'"',
    ]


def envelope(type_: str, execution: int) -> bytes:
    """As we write them, but for its type."""
    return msgspec.json.encode(
        Envelope(
            message_id="4611686018427387",
            correlation_id="1",
            type=type_,
            version=1,
            timestamp=datetime.now(UTC),
            topic=dispatch_topic(NOBODY),
            items=((execution, 1),),
        )
    )


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """Somebody else's hand on the broker."""
    connection = await aio_pika.connect(rabbitmq_url)
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def test_garbage_among_the_dead_letters_is_parked_and_harms_nobody(
    database: Database, rabbitmq_url: str, channel: AbstractChannel
) -> None:
    await make_action(database)
    worker = await make_worker(database, heartbeat_interval=3600)
    transport = build_transport(database, rabbitmq_url, dispatch_ttl_seconds=TTL_SECONDS)
    metrics = build_metrics(version="test", service="executor")
    with capture_logs() as told:
        async with executor(database, transport=transport, metrics=metrics, limits=HASTY):
            await transport.declare(worker_queues(worker.worker_id, ttl_ms=3_600_000))
            [bystander] = await request(database)
            await until(lambda: are(database, [bystander], "scheduled"))
            garbage = unreadable(bystander) + [envelope(type_, bystander) for type_ in UNKNOWN]
            for body in garbage:
                await channel.default_exchange.publish(aio_pika.Message(body), QUEUE)
            [expired] = await request(database, worker_id=NOBODY)

            await until(lambda: are(database, [expired], "failed"))
            await until(lambda: parked(database, len(garbage)))
            await until(lambda: is_empty(channel))
            await until(lambda: nothing_waits(database))

    reasons = Counter(unreadable=len(unreadable(bystander))) + Counter({"unknown type": len(UNKNOWN)})
    async with database.reading() as tx:
        found = await tx.fetch("SELECT reason, outcome FROM dead_letter")
    assert Counter(row["reason"] for row in found if row["outcome"] is None) == reasons
    # On a slow machine the dispatch of the bystander may die, too, before it is sent; it is then sent anew.
    assert {row["reason"] for row in found if row["outcome"] is not None} == {"expired"}
    assert [row["outcome"] for row in found].count("failed_execution") == 1
    events = Counter(each["event"] for each in told)
    assert (events["message.unreadable"], events["message.parked"]) == tuple(reasons.values())
    assert await statuses(database, [bystander]) in (["scheduled"], ["scheduling"])
    await nothing_is_broken(database)


async def are(database: Database, ids: list[int], status: str) -> bool:
    return set(await statuses(database, ids)) == {status}


async def parked(database: Database, expected: int) -> bool:
    async with database.reading() as tx:
        return bool(await tx.fetch_value("SELECT count(*) = $1 FROM dead_letter WHERE outcome IS NULL", expected))


async def nothing_waits(database: Database) -> bool:
    async with database.reading() as tx:
        return not await tx.fetch_value("SELECT count(*) FROM outbox WHERE topic = 'dead'")


async def is_empty(channel: AbstractChannel) -> bool:
    found = await channel.declare_queue(QUEUE, passive=True)
    return found.declaration_result.message_count == 0
