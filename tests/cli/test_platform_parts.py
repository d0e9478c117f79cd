"""The parts the supervisor is made of: lock, control socket, log files, tether, ports, marks."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from attune.cli.exits import CommandFailed, Exit
from attune.cli.platform.autoscale import CALM_SECONDS, Calm
from attune.cli.platform.control import LINE_BYTES_MAX, ControlServer, NotRunning, Request, ask, socket_path
from attune.cli.platform.instance import only_instance, owner
from attune.cli.platform.logfiles import OLDER_FILES_MAX, follow, rotate, tail
from attune.cli.platform.ports import require_free
from attune.cli.platform.processes import SUPERVISOR_VARIABLE, end, find_marked, marked_environment
from attune.cli.platform.services import Count, read_counts
from attune.runtime.home import Home, HomeUnusable, ensure_secret, keep_secret, prepare_home, read_secret
from tests.cli.commands import wait_for


@pytest.fixture
def place(home: Path) -> Home:
    prepared = Home(home)
    prepare_home(prepared)
    return prepared


# The home


def test_secrets_are_drawn_once_and_closed_to_others(place: Home) -> None:
    first = ensure_secret(place.database_password)
    assert ensure_secret(place.database_password) == first
    assert len(first) >= 32
    assert place.database_password.stat().st_mode & 0o777 == 0o600
    assert place.secrets.stat().st_mode & 0o777 == 0o700


def test_a_secret_is_replaced_whole(place: Home) -> None:
    keep_secret(place.cli_token, "one")
    keep_secret(place.cli_token, "two")
    assert read_secret(place.cli_token) == "two"
    assert [each.name for each in place.secrets.iterdir()] == ["cli_token"]


def test_a_home_below_a_file_is_refused_by_name(home: Path) -> None:
    home.write_text("not a directory")
    with pytest.raises(HomeUnusable, match=r"ATTUNE_HOME") as caught:
        prepare_home(Home(home / "below"))
    assert str(home) in str(caught.value)


# One instance


def test_the_second_supervisor_learns_who_is_the_first(place: Home) -> None:
    with only_instance(place):
        assert owner(place) == os.getpid()
        with pytest.raises(CommandFailed, match=rf"pid {os.getpid()}") as caught, only_instance(place):
            pass
    assert caught.value.exit_code is Exit.INVALID
    assert owner(place) is None


def test_a_dead_supervisor_holds_nothing(place: Home) -> None:
    code = (
        "import sys, time; from pathlib import Path; from attune.runtime.home import Home;"
        "from attune.cli.platform.instance import only_instance\n"
        "with only_instance(Home(Path(sys.argv[1]))): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(place.root)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert owner(place) == holder.pid
        holder.kill()
    with only_instance(place):
        assert owner(place) == os.getpid()


# The control socket


async def echo(request: Request) -> object:
    if request.command == "refuse":
        raise CommandFailed("not that")
    return {"asked": request.command, "scale": request.scale}


async def test_the_supervisor_answers_over_a_private_socket(place: Home) -> None:
    server = ControlServer(place, echo)
    await server.start()
    try:
        assert (
            await ask(place, Request(command="scale", scale={"worker": 2})) == b'{"asked":"scale","scale":{"worker":2}}'
        )
        assert socket_path(place).stat().st_mode & 0o777 == 0o600
        with pytest.raises(CommandFailed, match="not that"):
            await ask(place, Request(command="refuse"))
    finally:
        await server.close()
    assert not socket_path(place).exists()
    with pytest.raises(NotRunning):
        await ask(place, Request(command="status"))


async def test_a_path_too_long_for_a_socket_is_replaced_by_a_short_private_one(place: Home) -> None:
    deep = Home(place.root / ("long" * 25))
    prepare_home(deep)
    server = ControlServer(deep, echo)
    await server.start()
    try:
        directory = socket_path(deep).parent
        assert directory.parent == Path(tempfile.gettempdir())
        assert directory.stat().st_mode & 0o777 == 0o700
        assert b"status" in await ask(deep, Request(command="status"))
    finally:
        await server.close()
    assert not directory.exists()


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"command": 1}\n', b'{"command": "x", "more": 1}\n'])
async def test_nonsense_on_the_socket_is_answered_as_such(place: Home, line: bytes) -> None:
    server = ControlServer(place, echo)
    await server.start()
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path(place))
        writer.write(line)
        assert b"not understood" in await reader.readline()
        writer.close()
    finally:
        await server.close()


async def test_a_line_without_an_end_is_not_kept(place: Home) -> None:
    server = ControlServer(place, echo)
    await server.start()
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path(place))
        writer.write(b"x" * (3 * LINE_BYTES_MAX))
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert b"status" in await ask(place, Request(command="status"))
    finally:
        await server.close()


# Log files


def test_a_log_that_grew_is_set_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    with log.open("ab", buffering=0) as writer:
        for number in range(OLDER_FILES_MAX + 2):
            writer.write(b"%d" % number * 20)
            assert rotate(log, bytes_max=10)
        writer.write(b"newest")
    assert log.read_bytes() == b"newest"
    assert len(list(tmp_path.iterdir())) == 1 + OLDER_FILES_MAX
    assert (tmp_path / "worker-1.log.1").read_bytes() == b"4" * 20
    assert not rotate(log, bytes_max=10)


def test_the_end_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    assert tail(log, lines_max=2) == ["line 98", "line 99"]
    assert tail(tmp_path / "none.log", lines_max=2) == []


def test_following_sees_what_is_added_and_survives_a_cut(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("before\n")
    following = follow([log])
    code = f"open({str(log)!r}, 'a').write('added\\n')"
    later = subprocess.Popen([sys.executable, "-c", code])
    assert next(following) == (log, b"added\n")
    later.wait()
    log.write_text("cut\n")
    assert next(following) == (log, b"cut\n")


# The tether

TIED = (
    "import os, sys, time; from attune.cli.platform.tether import supervisor_of, tie;"
    "tie(supervisor_of(os.environ), grace_seconds=0); print('tied', flush=True); time.sleep(600)"
)
SUPERVISES = (
    "import os, subprocess, sys, time;"
    f"child = subprocess.Popen([sys.executable, '-P', '-c', {TIED!r}], stdout=subprocess.PIPE,"
    f" env={{**os.environ, '{SUPERVISOR_VARIABLE}': str(os.getpid())}}, start_new_session=True);"
    "child.stdout.readline(); print(child.pid, flush=True); time.sleep(600)"
)


def test_a_service_ends_when_its_supervisor_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-P", "-c", SUPERVISES], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        service = psutil.Process(int(supervisor.stdout.readline()))
        supervisor.kill()
    wait_for(lambda: not service.is_running() or service.status() == psutil.STATUS_ZOMBIE, what="the service is gone")


def test_a_service_whose_supervisor_is_gone_already_does_not_start() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    environment = {**os.environ, SUPERVISOR_VARIABLE: str(gone.pid)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", TIED], env=environment, capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")


# Ports and counts


def test_a_port_in_use_names_its_owner() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        with pytest.raises(CommandFailed, match=rf"\(pid {os.getpid()}\)") as caught:
            require_free("127.0.0.1", taken.getsockname()[1])
    assert caught.value.exit_code is Exit.INVALID


def test_a_free_port_is_fine() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    require_free("127.0.0.1", port)


@pytest.mark.parametrize(
    "text",
    [
        "bogus=1",
        "worker",
        "worker=",
        "worker=x",
        "worker=-1",
        "worker=1000",
        "api=2",
        "worker=4..1",
        "worker=1..",
        "worker=1..1000",
        "executor=1..4",
    ],
)
def test_a_count_that_makes_no_sense_is_a_usage_error(text: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        read_counts((text,))
    assert caught.value.exit_code is Exit.USAGE


def test_a_range_is_read_for_workers() -> None:
    counts = read_counts(("worker=1..4", "executor=2"))
    assert counts == {"worker": Count(low=1, high=4), "executor": Count(low=2, high=2)}
    assert [counts["worker"].clamp(number) for number in (0, 2, 9)] == [1, 2, 4]


def test_workers_are_added_at_once_and_taken_away_after_a_calm() -> None:
    calm = Calm()
    assert calm.choose(4, present=1, now=0) == 4
    assert calm.choose(1, present=4, now=1) == 4
    assert calm.choose(2, present=4, now=2) == 4
    assert calm.choose(1, present=4, now=1 + CALM_SECONDS) == 2, "the most that was wanted meanwhile"
    assert calm.choose(1, present=2, now=40) == 2
    assert calm.choose(3, present=2, now=41) == 3, "a new need ends the calm"
    assert calm.choose(1, present=3, now=42) == 3


# Marks


@pytest.fixture
def sleepers() -> Iterator[list["subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.wait()


def test_only_marked_processes_of_this_home_are_found(place: Home, sleepers: list["subprocess.Popen[bytes]"]) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    unmarked = {**os.environ, "ATTUNE_HOME": str(place.root)}
    elsewhere = marked_environment(place.root.parent / "other", "worker-1", os.environ)
    marked = marked_environment(place.root, "worker-1", os.environ)
    sleepers += [subprocess.Popen(sleeper, env=each) for each in (unmarked, elsewhere, marked)]
    wait_for(lambda: len(find_marked(place)) == 1, what="one is found")
    assert [each.pid for each in find_marked(place)] == [sleepers[-1].pid]
    assert end(find_marked(place), ask=find_marked(place), grace_seconds=10) == []
    assert sleepers[-1].wait() == -signal.SIGTERM
    assert sleepers[0].poll() is None, "a shell that happens to have ATTUNE_HOME set is left alone"


def test_a_title_does_not_wipe_the_mark(place: Home, sleepers: list["subprocess.Popen[bytes]"]) -> None:
    code = (
        "import setproctitle, time; setproctitle.setproctitle('attune-worker worker-1');"
        "print('titled', flush=True); time.sleep(600)"
    )
    environment = marked_environment(place.root, "worker-1", os.environ)
    command = [sys.executable, "-c", code, "a" * 40]
    sleepers.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
    output = sleepers[0].stdout
    assert output is not None
    with output:
        assert output.readline() == b"titled\n"
        (found,) = find_marked(place)
        assert found.cmdline()[0].startswith("attune-worker worker-1")
