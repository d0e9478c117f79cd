"""The embedded PostgreSQL keeps its promises: private, durable, never root, and back after a crash."""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import psutil
import pytest
import pytest_asyncio

from attune.runtime.postgres_server import AlreadyRunning, PostgresServer, ServerError
from attune.runtime.postgres_server.plan import socket_directory, socket_lock
from attune.runtime.postgres_server.tuning import settings_of
from tests.runtime.embedded_servers import (
    DEADLINE_SECONDS,
    IS_ROOT,
    PASSWORD,
    another_program,
    begin,
    connect,
    ended_process,
    make_place,
    plan_in,
    tell,
    until,
)

SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")

only_root = pytest.mark.skipif(not IS_ROOT, reason="only root changes accounts; run the tests as root as well")


# --- places and servers -------------------------------------------------------------------------------------------


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other accounts can pass through, unlike pytest's own."""
    with make_place() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running() -> AsyncIterator[PostgresServer]:
    """One server for the tests that only look at it."""
    with make_place() as home:
        server = PostgresServer(plan_in(home))
        await server.start()
        yield server
        await server.stop()


@pytest.fixture(scope="module")
def stopped_home() -> Iterator[Path]:
    """The home of one stopped server: tests that start and crash servers take turns with its data."""
    with make_place() as home:
        tell("start_and_tell", home)
        yield home


@pytest_asyncio.fixture(loop_scope="session")
async def own(stopped_home: Path) -> AsyncIterator[PostgresServer]:
    """A stopped server; whatever runs on its data at the end is ended."""
    server = PostgresServer(plan_in(stopped_home))
    yield server
    await server.stop()


# --- private --------------------------------------------------------------------------------------------------------


async def test_a_wrong_password_is_refused(running: PostgresServer) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(running.url, password="guess")


async def test_no_way_in_without_a_password_is_configured(running: PostgresServer) -> None:
    connection = await connect(running)
    methods = await connection.fetch("SELECT DISTINCT auth_method FROM pg_hba_file_rules")
    await connection.close()
    assert [row["auth_method"] for row in methods] == ["scram-sha-256"]


async def test_the_socket_belongs_to_the_server_alone(running: PostgresServer) -> None:
    assert running.pid is not None
    found = socket_directory(running.plan).stat()
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid == psutil.Process(running.pid).uids().real


async def test_nothing_listens_on_the_network(running: PostgresServer) -> None:
    assert running.pid is not None
    assert psutil.Process(running.pid).net_connections("inet") == []
    assert psutil.Process(running.pid).net_connections("unix") != []


async def test_the_data_is_private(running: PostgresServer) -> None:
    assert stat.S_IMODE(running.plan.data.stat().st_mode) == 0o700


async def test_the_password_stays_out_of_sight(running: PostgresServer) -> None:
    assert running.pid is not None
    assert PASSWORD not in " ".join(psutil.Process(running.pid).cmdline())
    assert PASSWORD not in " ".join(psutil.Process(running.pid).environ().values())
    assert PASSWORD not in repr(running.plan)
    assert list(socket_directory(running.plan).glob(".secret-*")) == []


@only_root
async def test_root_lends_postgresql_another_account(running: PostgresServer) -> None:
    assert running.pid is not None
    process = psutil.Process(running.pid)
    assert 0 not in process.uids()
    assert 0 not in process.gids()
    groups = next(line for line in Path(f"/proc/{running.pid}/status").read_text().splitlines() if "Groups:" in line)
    assert groups.split() == ["Groups:"]


# --- durable --------------------------------------------------------------------------------------------------------


async def test_pages_carry_checksums(running: PostgresServer) -> None:
    connection = await connect(running)
    assert await connection.fetchval("SHOW data_checksums") == "on"
    await connection.close()


async def test_text_is_utf8_in_the_same_order_everywhere(running: PostgresServer) -> None:
    connection = await connect(running)
    assert await connection.fetchval("SHOW server_encoding") == "UTF8"
    assert await connection.fetchval("SELECT upper('ä') || ('B' < 'a')::text") == "Ätrue"
    await connection.close()


def test_nothing_committed_is_lost_unless_asked_for(place: Path) -> None:
    durable = settings_of(plan_in(place, durable=True))
    careless = settings_of(plan_in(place, durable=False))
    names = ("fsync", "synchronous_commit", "full_page_writes")
    assert [durable[name] for name in names] == ["on", "on", "on"]
    assert [careless[name] for name in names] == ["off", "off", "off"]


async def test_committed_rows_survive_the_killing_of_the_server(own: PostgresServer) -> None:
    server = PostgresServer(replace(own.plan, durable=True))
    await server.start()
    connection = await connect(server)
    await connection.execute("CREATE TABLE kept (value int); INSERT INTO kept VALUES (7)")
    # It ends by itself should this test fail.
    await connection.execute("SET statement_timeout = '30s'")
    # A backend too busy to notice that its server is gone still holds the shared memory.
    busy = asyncio.create_task(connection.execute("SELECT count(*) FROM generate_series(1, 1000000000000)"))
    other = await connect(server)
    begun = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%series(1, %' AND pid <> pg_backend_pid()"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not await other.fetchval(begun):
        assert time.monotonic() < deadline, "the busy query did not begin"
        await asyncio.sleep(0.01)
    assert server.pid is not None

    os.kill(server.pid, signal.SIGKILL)
    assert await server.wait() == -signal.SIGKILL
    await server.start()

    with contextlib.suppress(asyncpg.PostgresError, OSError):
        await busy
    other.terminate()
    connection = await connect(server)
    assert await connection.fetchval("SELECT value FROM kept") == 7
    await connection.close()
    await server.stop()


# --- back after a crash ---------------------------------------------------------------------------------------------


async def test_a_process_id_that_another_program_got_does_not_block_the_start(own: PostgresServer) -> None:
    with another_program(uid=own.plan.data.stat().st_uid) as pid:
        pid_file = own.plan.data / "postmaster.pid"
        pid_file.write_text(f"{pid}\n{own.plan.data}\n1700000000\n5432\n/nowhere\n\n", encoding="ascii")
        shutil.copy(pid_file, socket_lock(own.plan))
        assert own.running_pid() is None
        await own.start()
        assert own.running_pid() == own.pid


async def test_a_process_id_that_nobody_has_does_not_block_the_start(own: PostgresServer) -> None:
    (own.plan.data / "postmaster.pid").write_text(f"{ended_process()}\n{own.plan.data}\n", encoding="ascii")
    await own.start()
    assert own.running_pid() == own.pid


async def test_an_initialisation_killed_in_the_middle_is_begun_again(place: Path) -> None:
    launcher = begin("start_and_tell", place)
    await until(lambda: any(place.glob(".data.initdb-*/base")))
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.communicate()
    assert any(place.glob(".data.initdb-*"))
    assert not (place / "data").exists()

    server = PostgresServer(plan_in(place))
    await server.start()
    await server.stop()
    assert not any(place.glob(".data.initdb-*"))


async def test_a_cancelled_start_leaves_no_server_behind(own: PostgresServer) -> None:
    starting = asyncio.create_task(own.start())
    await until(lambda: own.pid is not None)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert own.running_pid() is None


async def test_the_end_of_the_server_is_noticed(own: PostgresServer) -> None:
    await own.start()
    watching = asyncio.create_task(own.wait())
    await PostgresServer(own.plan).stop()
    assert await watching == 0
    assert own.pid is None


# --- one server for one data directory --------------------------------------------------------------------------------


async def test_a_second_server_on_the_same_data_is_refused(running: PostgresServer) -> None:
    with pytest.raises(AlreadyRunning) as caught:
        await PostgresServer(running.plan).start()
    assert caught.value.pid == running.pid
    assert running.running_pid() == running.pid


async def test_of_two_starts_at_once_one_wins(own: PostgresServer) -> None:
    other = PostgresServer(own.plan)
    results = await asyncio.gather(own.start(), other.start(), return_exceptions=True)
    await other.stop()
    assert sorted(type(result).__name__ for result in results) == ["AlreadyRunning", "NoneType"]


async def test_a_database_is_made_once(running: PostgresServer) -> None:
    await running.ensure_database("further")
    await running.ensure_database("further")
    connection = await asyncpg.connect(running.url_of("further"))
    assert await connection.fetchval("SELECT current_database()") == "further"
    await connection.close()
    with pytest.raises(ServerError, match="no database name"):
        await running.ensure_database("host=elsewhere")


async def test_another_password_than_the_first_is_explained(own: PostgresServer) -> None:
    with pytest.raises(ServerError, match="not the one"):
        await PostgresServer(replace(own.plan, password="forgotten")).start()
    assert own.running_pid() is None


async def test_a_socket_path_too_long_gets_a_short_private_directory(own: PostgresServer) -> None:
    server = PostgresServer(replace(own.plan, socket_directory=own.plan.home / ("long" * 30)))
    await server.start()
    short = socket_directory(server.plan)
    try:
        assert len(os.fsencode(short)) < 90
        assert stat.S_IMODE(short.stat().st_mode) == 0o700
        await (await connect(server)).close()
    finally:
        await server.stop()
        shutil.rmtree(short)
