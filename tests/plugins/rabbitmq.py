"""One RabbitMQ node for the whole run, a virtual host of its own for each test.

The node starts while the first tests already run, and only if a selected test wants it. Tests take `rabbitmq_url`;
a test that asks for it through a parameter marks that parameter with `pytest.mark.rabbitmq`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.plugins.report import not_run
from tests.witness.keep_rabbitmq import Unavailable, read_particulars
from tests.witness.servers import RabbitMQ, start_rabbitmq
from tools.unpack import CannotUnpack, unpack

RUN_DIRECTORY = "ATTUNE_TEST_RUN_DIRECTORY"
URL = "ATTUNE_TEST_RABBITMQ_URL"
SHARED = frozenset({"rabbitmq", "rabbitmq_url"})
PRIVATE = frozenset({"private_rabbitmq"})
READY_SECONDS = 80
STOP_SECONDS = 30
CURE = "install rabbitmq-server, or let apt-get reach its sources and run tools/unpack.py rabbitmq"


def is_controller(config: pytest.Config) -> bool:
    return not hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """The processes of a parallel run inherit the environment, and with it the place where they meet."""
    if is_controller(config):
        os.environ[RUN_DIRECTORY] = tempfile.mkdtemp(prefix="attune-tests-")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (SHARED | PRIVATE).intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.rabbitmq)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    if any(wants_shared_node(item) for item in session.items):
        start_keeper(session.config)


def wants_shared_node(item: pytest.Item) -> bool:
    """A mark alone may stand for a fixture that is asked for while the test runs."""
    alone = PRIVATE.intersection(getattr(item, "fixturenames", ()))
    return item.get_closest_marker("rabbitmq") is not None and not alone


def start_keeper(config: pytest.Config) -> None:
    """The first process that wants the node starts its keeper; the others find the pid file taken."""
    directory = Path(os.environ[RUN_DIRECTORY])
    try:
        pid_file = (directory / "keeper.pid").open("x")
    except FileExistsError:
        return
    controller = os.getpid() if is_controller(config) else os.getppid()
    command = [sys.executable, "-m", "tests.witness.keep_rabbitmq", str(controller), str(directory / "rabbitmq.json")]
    log = os.fspath(directory / "keeper.log")
    with pid_file:
        pid = os.posix_spawn(
            sys.executable,
            command,
            {**os.environ, "PYTHONPATH": str(config.rootpath)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        pid_file.write(str(pid))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not is_controller(config) or RUN_DIRECTORY not in os.environ:
        return
    directory = Path(os.environ.pop(RUN_DIRECTORY))
    with suppress(OSError, ValueError, psutil.NoSuchProcess):
        keeper = psutil.Process(int((directory / "keeper.pid").read_text()))
        if "tests.witness.keep_rabbitmq" in keeper.cmdline():
            keeper.send_signal(signal.SIGTERM)
            keeper.wait(STOP_SECONDS)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
async def rabbitmq() -> RabbitMQ:
    """The run's node; a test that crashes its node takes `private_rabbitmq`."""
    file = Path(os.environ[RUN_DIRECTORY], "rabbitmq.json")
    deadline = time.monotonic() + READY_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    if not file.exists():
        log = file.with_name("keeper.log").read_text()[-2000:]
        not_run(f"RabbitMQ did not start within {READY_SECONDS} s: {log}", cure=CURE)
    node = read_particulars(file)
    if isinstance(node, Unavailable):
        not_run(node.reason, cure=CURE)
    os.environ[URL] = node.url()
    return node


@pytest.fixture
async def private_rabbitmq() -> AsyncIterator[RabbitMQ]:
    """A node for one test alone, which may kill it and start it again."""
    try:
        await asyncio.to_thread(unpack, "rabbitmq")
    except CannotUnpack as error:
        not_run(str(error), cure=CURE)
    async with start_rabbitmq() as node:
        yield node


@pytest.fixture
async def rabbitmq_url(rabbitmq: RabbitMQ) -> AsyncIterator[str]:
    """The address of an empty virtual host that no other test sees."""
    vhost = f"test-{secrets.token_hex(6)}"
    await rabbitmq.add_vhost(vhost)
    yield rabbitmq.url(vhost)
    await rabbitmq.drop_vhost(vhost)


def need_rabbitmq() -> None:
    """For a test that starts a node by itself: where there is none it is told, and not run."""
    try:
        unpack("rabbitmq")
    except CannotUnpack as error:
        not_run(str(error), cure=CURE)
