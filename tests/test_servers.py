"""The servers that tests stand on: private, apart from each other, and gone afterwards."""

from __future__ import annotations

from urllib.parse import urlsplit

import aio_pika
import psutil
import pytest

from tests.plugins.report import not_run
from tests.witness.servers import RabbitMQ, start_postgres_15
from tools.unpack import CannotUnpack, unpack


async def test_a_message_passes_through_the_node_of_the_run(rabbitmq_url: str) -> None:
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue("greetings")
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), "greetings")
        message = await queue.get(no_ack=True)
    assert message.body == b"hello"


@pytest.mark.parametrize("turn", [1, 2])
async def test_no_test_sees_the_queues_of_another(rabbitmq_url: str, turn: int) -> None:
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue("mine", durable=True)
        assert queue.declaration_result.message_count == 0
        await channel.default_exchange.publish(aio_pika.Message(b"left behind"), "mine")


async def test_the_node_knows_no_guest(rabbitmq: RabbitMQ) -> None:
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{rabbitmq.ports[0]}/")


@pytest.mark.slow
async def test_a_killed_node_leaves_no_process_and_comes_back(private_rabbitmq: RabbitMQ) -> None:
    tops = [psutil.Process(process.pid) for process in private_rabbitmq.processes]
    everyone = [*tops, *(child for top in tops for child in top.children(recursive=True))]
    await private_rabbitmq.kill()
    assert len(everyone) > 2
    assert not [each for each in everyone if each.is_running()]
    await private_rabbitmq.start()
    connection = await aio_pika.connect(private_rabbitmq.url())
    await connection.close()


@pytest.mark.postgres15
async def test_postgresql_15_listens_on_loopback_and_leaves_nothing() -> None:
    try:
        unpack("postgresql-15")
    except CannotUnpack as error:
        not_run(str(error), cure="install postgresql-15")
    async with start_postgres_15() as server:
        assert server.process is not None
        postmaster = psutil.Process(server.process.pid)
        assert {at.laddr.ip for at in postmaster.net_connections("tcp")} == {"127.0.0.1"}
        assert urlsplit(server.url()).password
    assert not postmaster.is_running()
    assert not server.directory.exists()
