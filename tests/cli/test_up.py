"""What `attune up` refuses: one clear line each, and nothing left behind."""

import json
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from attune.cli.platform.instance import only_instance
from attune.cli.platform.processes import find_marked
from attune.runtime.home import Home, prepare_home
from tests.cli.commands import attune


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def refused(home: Path, port: int, more: dict[str, str] | None = None) -> tuple[int, str]:
    """How a detached start ended that must not succeed."""
    done = attune("up", "--detach", "--port", str(port), home=home, more=more)
    assert done.returncode != 0
    assert not done.stdout
    assert "Traceback" not in done.stderr
    assert find_marked(Home(home)) == [], "something was left running"
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("attune: ")]
    return done.returncode, line


def test_a_port_in_use_is_refused_with_its_owner(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        code, line = refused(home, taken.getsockname()[1])
    assert code == 5
    assert f"(pid {os.getpid()})" in line
    assert "--port" in line


def test_a_second_up_on_the_same_home_is_refused_with_the_first(home: Path, port: int) -> None:
    place = Home(home)
    prepare_home(place)
    with only_instance(place):
        code, line = refused(home, port)
    assert code == 5
    assert f"already runs in {home} (pid {os.getpid()})" in line


def test_an_unknown_setting_is_refused_with_the_nearest(home: Path, port: int) -> None:
    code, line = refused(home, port, {"ATTUNE__WORKER__CAPACTIY": "8"})
    assert code == 5
    assert "ATTUNE__WORKER__CAPACITY" in line


def test_a_count_without_meaning_is_a_usage_error(home: Path) -> None:
    done = attune("up", "--scale", "workers=2", home=home)
    assert done.returncode == 2
    assert "api, executor, worker, sensor, notifier" in done.stderr


def test_a_home_that_cannot_be_written_is_refused_by_name(port: int) -> None:
    code, line = refused(Path("/sys/attune-home"), port)
    assert code == 1
    assert "/sys/attune-home" in line
    assert "ATTUNE_HOME" in line


@pytest.fixture
def private_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="attune-private-"))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    yield directory
    shutil.rmtree(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lends the database another account")
def test_a_home_the_database_user_cannot_enter_is_refused_by_name(private_directory: Path, port: int) -> None:
    code, line = refused(private_directory / "home", port)
    assert code == 1
    assert str(private_directory) in line
    assert "mode 0700" in line
    assert "chmod" in line


def test_a_database_that_does_not_answer_is_unreachable(home: Path, port: int) -> None:
    code, line = refused(home, port, {"ATTUNE__DATABASE__URL": "postgresql://me:hush@127.0.0.1:1/attune"})
    assert code == 7
    assert "127.0.0.1:1" in line
    assert "hush" not in line


async def test_a_wrong_database_password_is_refused(home: Path, port: int, empty_database_url: str) -> None:
    wrong = re.sub(r"(?<=:)[^:/@]+(?=@)", "wrong", empty_database_url)
    assert wrong != empty_database_url
    code, line = refused(home, port, {"ATTUNE__DATABASE__URL": wrong})
    assert code == 3
    assert "password" in line


async def test_a_database_that_does_not_exist_is_not_found(home: Path, port: int, empty_database_url: str) -> None:
    missing = re.sub(r"/test_[0-9a-f]+\?", "/no_such_database?", empty_database_url)
    code, line = refused(home, port, {"ATTUNE__DATABASE__URL": missing})
    assert code == 4
    assert "no_such_database" in line


async def test_a_database_of_a_newer_version_is_refused(home: Path, port: int, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO attune.schema_version (version, name, checksum) VALUES (9999, 'later', 'x')")
    await connection.close()
    code, line = refused(home, port, {"ATTUNE__DATABASE__URL": database_url})
    assert code == 5
    assert "9999" in line
    assert "newer" in line


def test_down_is_content_when_nothing_runs(home: Path) -> None:
    assert attune("down", home=home).returncode == 0
    assert not home.exists(), "asking creates nothing"


def test_status_of_nothing_has_the_usual_shape(home: Path) -> None:
    done = attune("status", "-o", "json", home=home)
    assert done.returncode == 7
    assert json.loads(done.stdout) == {"url": None, "ready": False, "transport": None, "processes": []}


def test_scaling_nothing_is_unreachable(home: Path) -> None:
    done = attune("scale", "worker=2", home=home)
    assert done.returncode == 7
    assert str(home) in done.stderr


def test_there_are_no_logs_of_what_never_ran(home: Path) -> None:
    done = attune("logs", "worker-1", home=home)
    assert done.returncode == 4
    assert "worker-1" in done.stderr


# The database's own commands


async def test_the_database_is_brought_to_this_version_and_asked(home: Path, empty_database_url: str) -> None:
    more = {"ATTUNE__DATABASE__URL": empty_database_url}
    assert attune("db", "url", home=home, more=more).stdout.strip() == empty_database_url
    first = json.loads(attune("db", "migrate", "-o", "json", home=home, more=more).stdout)
    assert first["applied"]
    again = json.loads(attune("db", "migrate", "-o", "json", home=home, more=more).stdout)
    assert again == {"applied": []}
    asked = attune("db", "psql", "-c", "SELECT count(*) FROM schema_version", "--", "-At", home=home, more=more)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip() == str(len(first["applied"]))


async def test_the_password_is_not_among_the_arguments_of_psql(home: Path, empty_database_url: str) -> None:
    more = {"ATTUNE__DATABASE__URL": empty_database_url}
    # psql runs a command of its own shell: its parent is psql itself.
    asked = attune("db", "psql", "-c", r"\! tr '\0' ' ' < /proc/$PPID/cmdline", home=home, more=more)
    password = re.findall(r":([^:/@]+)@", empty_database_url)[0]
    assert "psql" in asked.stdout
    assert password not in asked.stdout
