"""A process that consumes or publishes until it is killed: `python -m tests.transport.child ROLE DATABASE BROKER`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace

import aio_pika

from attune.domain.messages import Message, MessageType
from attune.runtime.failpoints import arm_from_environment
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.transport import codec
from attune.transport.topology import exchange_of
from tests.transport.station import EVENTS, QUICK, leave_effect, station

POISON = 13
PUBLISHERS = 4


async def hold(_tx: Tx, messages: Sequence[Message]) -> None:
    """Say what was received, and never finish."""
    say(f"holding {len(messages)}")
    await asyncio.Event().wait()


async def die_of_poison(tx: Tx, messages: Sequence[Message]) -> None:
    """Most messages are fine, one kills."""
    if any(item[0] == POISON for message in messages for item in message.items):
        os.kill(os.getpid(), signal.SIGKILL)
    await leave_effect(tx, messages)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def consume_until_killed(database_url: str, broker_url: str, *, fragile: bool) -> None:
    limits = replace(QUICK, suspect_seconds=0.5)
    async with (
        station(database_url, broker_url) as here,
        here.consuming(EVENTS, die_of_poison if fragile else hold, limits),
    ):
        say("ready")
        await asyncio.Event().wait()


async def work_until_killed(database_url: str, broker_url: str) -> None:
    """Relay what is in the outbox and handle it, a few at a time, so that every step comes up often."""
    limits = replace(QUICK, batch_max=3)
    async with station(database_url, broker_url) as here, here.consuming(EVENTS, leave_effect, limits):
        await asyncio.Event().wait()


async def publish_with_outbox(database_url: str, broker_url: str) -> None:
    """Write a change and announce it, as fast as it goes."""

    async def publish_some(database: Database) -> None:
        while True:
            async with database.transaction() as tx:
                change = await tx.fetch_value("INSERT INTO change DEFAULT VALUES RETURNING id")
                tx.announce(MessageType.EVENT_CREATED, MessageType.EVENT_CREATED, [(change, 0)])

    async with station(database_url, broker_url) as here:
        await here.transport.declare([EVENTS])
        say("ready")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PUBLISHERS):
                tasks.create_task(publish_some(here.database))


async def publish_after_commit(database_url: str, broker_url: str) -> None:
    """The design without an outbox: commit first, then send, each message confirmed."""
    database = await Database.connect(database_url)
    connection = await aio_pika.connect(broker_url)
    channel = await connection.channel(publisher_confirms=True)
    exchange = await channel.get_exchange(exchange_of(MessageType.EVENT_CREATED), ensure=False)

    async def publish_some() -> None:
        while True:
            async with database.transaction() as tx:
                change = await tx.fetch_row("INSERT INTO change DEFAULT VALUES RETURNING id, now() AS now")
            assert change is not None
            message = Message(
                id=change["id"],
                topic=MessageType.EVENT_CREATED,
                type=MessageType.EVENT_CREATED,
                items=((change["id"], 0),),
                deliveries=0,
                created=change["now"],
                not_before=change["now"],
            )
            await exchange.publish(aio_pika.Message(codec.encode(message)), message.topic)

    say("ready")
    async with asyncio.TaskGroup() as tasks:
        for _ in range(PUBLISHERS):
            tasks.create_task(publish_some())


async def main(role: str, database_url: str, broker_url: str) -> None:
    match role:
        case "hold":
            await consume_until_killed(database_url, broker_url, fragile=False)
        case "fragile":
            await consume_until_killed(database_url, broker_url, fragile=True)
        case "work":
            arm_from_environment(os.environ)
            await work_until_killed(database_url, broker_url)
        case "outbox":
            await publish_with_outbox(database_url, broker_url)
        case "after-commit":
            await publish_after_commit(database_url, broker_url)
        case _:
            raise ValueError(role)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
