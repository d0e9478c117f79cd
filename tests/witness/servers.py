"""Private servers for tests: a RabbitMQ node and a PostgreSQL 15, each with its own ports, files and passwords.

Both listen on loopback only, keep everything in one temporary directory, and leave neither process nor file behind.
They run for root and for everyone else; where they are not installed, they are unpacked into the cache directory.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import signal
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tools.unpack import unpack

START_SECONDS = 90
STOP_SECONDS = 15
POLL_SECONDS = 0.1
EVALUATE_SECONDS = 10
EVALUATE_TRIES = 3
AMQP_GREETING = b"AMQP\x00\x00\x09\x01"
UNPRIVILEGED = ("postgres", "nobody")
"""Whom PostgreSQL runs as when the tests run as root, which it refuses to do."""


class ServerFailed(Exception):
    """A server did not start, or refused a command; carries the end of its log."""


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


# RabbitMQ


@dataclass(kw_only=True)
class RabbitMQ:
    """A node that was started for one run; `kill` and `start` stand for a crash and a return."""

    root: Path
    directory: Path
    node: str = field(default_factory=lambda: f"attune-{secrets.token_hex(4)}@localhost")
    user: str = "attune"
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    ports: Sequence[int] = field(default_factory=lambda: free_ports(3))
    processes: list[Process] = field(default_factory=list)

    def url(self, vhost: str = "%2F") -> str:
        return f"amqp://{self.user}:{self.password}@127.0.0.1:{self.ports[0]}/{vhost}"

    async def start(self) -> None:
        """First the name server that Erlang would otherwise leave behind as a daemon, then the node."""
        amqp, epmd, _ = self.ports
        environment = self._environment()
        with (self.directory / "output.log").open("ab") as output:
            for command in (
                [self._erlang("epmd"), "-port", str(epmd), "-address", "127.0.0.1"],
                [str(self.root / "usr/lib/rabbitmq/bin/rabbitmq-server")],
            ):
                self.processes.append(
                    await asyncio.create_subprocess_exec(
                        *command,
                        env=environment,
                        cwd=self.directory,
                        stdin=DEVNULL,
                        stdout=output,
                        stderr=STDOUT,
                        start_new_session=True,
                    )
                )
        await _until_answered(amqp, AMQP_GREETING, self.processes[-1], self.directory)

    async def kill(self) -> None:
        """End the node and its name server at once, as a crash would; the files stay."""
        await _kill_trees(self.processes)
        self.processes.clear()

    async def add_vhost(self, vhost: str) -> None:
        everything = ", ".join(['<<".*">>'] * 3)
        await self.evaluate(
            f'rabbit_vhost:add(<<"{vhost}">>, <<"tests">>), '
            f"rabbit_auth_backend_internal:set_permissions("
            f'<<"{self.user}">>, <<"{vhost}">>, {everything}, <<"tests">>).'
        )

    async def drop_vhost(self, vhost: str) -> None:
        await self.evaluate(f'rabbit_vhost:delete(<<"{vhost}">>, <<"tests">>).')

    async def evaluate(self, expression: str) -> str:
        """Run an Erlang expression on the node: a hundred times quicker than a start of rabbitmqctl.

        A handshake between Erlang nodes can hang on a loaded machine, so each call is bounded and made again; every
        expression here may be run twice.
        """
        answer = b"no answer"
        for _ in range(EVALUATE_TRIES):
            called = await self._call(expression)
            if called is not None and called.startswith(b"{ok,"):
                return called.decode()
            answer = called or answer
        raise ServerFailed(f"{expression}: {answer.decode(errors='replace')}")

    async def _call(self, expression: str) -> bytes | None:
        # The node refuses a second caller of the same name, and erl_call's own choice of name is always the same.
        name = f"caller-{secrets.token_hex(4)}"
        caller = await asyncio.create_subprocess_exec(
            *[self._erlang("erl_call"), "-h", name, "-n", self.node, "-e"],
            env=self._environment(),
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
        )
        try:
            answer, _ = await asyncio.wait_for(caller.communicate(f"{expression}\n".encode()), EVALUATE_SECONDS)
        except TimeoutError:
            return None
        finally:
            if caller.returncode is None:
                caller.kill()
                await caller.wait()
        return answer

    def write_files(self) -> None:
        """Everything the node would otherwise look for in places that the whole machine shares."""
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        (self.directory / "enabled_plugins").write_text("[].\n")
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.ports[0]}\n"
            f"default_user = {self.user}\n"
            f"default_pass = {self.password}\n"
            "disk_free_limit.absolute = 50MB\n"
            "log.file.level = warning\n"
        )

    def _erlang(self, program: str) -> str:
        return str(self.root / "usr/bin" / program)

    def _environment(self) -> Mapping[str, str]:
        amqp, epmd, distribution = self.ports
        here = str(self.directory)
        return {
            "PATH": f"{self.root}/usr/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LD_LIBRARY_PATH": _libraries(self.root),
            "LANG": "C.UTF-8",
            "HOME": here,
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(amqp),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": f"{here}/mnesia",
            "RABBITMQ_LOG_BASE": f"{here}/log",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{here}/generated",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/enabled_plugins",
            "RABBITMQ_CONFIG_FILE": f"{here}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{here}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": f"{here}/rabbitmq-env.conf",
            "RABBITMQ_PID_FILE": f"{here}/pid",
            # On loopback only, with no name server of its own, and without spinning while there is nothing to do.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
            ),
        }


@asynccontextmanager
async def start_rabbitmq() -> AsyncIterator[RabbitMQ]:
    root = await asyncio.to_thread(unpack, "rabbitmq")
    with tempfile.TemporaryDirectory(prefix="attune-rabbitmq-", ignore_cleanup_errors=True) as directory:
        node = RabbitMQ(root=root, directory=Path(directory))
        node.write_files()
        try:
            await node.start()
            yield node
        finally:
            await node.kill()


# PostgreSQL


@dataclass(kw_only=True)
class Postgres15:
    root: Path
    directory: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    user: str = "attune"
    password: str = field(default_factory=lambda: secrets.token_hex(16))
    process: Process | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{database}"

    async def create(self) -> None:
        """Make the data directory, with a password from the first moment."""
        password_file = self.directory / "password"
        password_file.write_text(self.password)
        owner = _unprivileged_user()
        if owner is not None:
            for path in (self.directory, password_file):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        initdb = await self._run(
            "initdb",
            *("-D", f"{self.directory}/data", "-U", self.user, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            *("-A", "scram-sha-256", "--pwfile", str(password_file)),
        )
        if await initdb.wait() != 0:
            raise ServerFailed(_log_end(self.directory))

    async def start(self) -> None:
        self.process = await self._run(
            "postgres",
            *("-D", f"{self.directory}/data", "-p", str(self.port), "-k", "", "-h", "127.0.0.1"),
            *("-c", "fsync=off", "-c", "max_connections=200", "-c", "dynamic_shared_memory_type=mmap"),
        )
        await _until_answered(self.port, b"\x00\x00\x00\x08\x04\xd2\x16\x2f", self.process, self.directory)

    async def stop(self) -> None:
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(self.process.wait(), STOP_SECONDS)
        except TimeoutError:
            await _kill_trees([self.process])

    async def _run(self, program: str, *arguments: str) -> Process:
        owner = _unprivileged_user()
        with (self.directory / "output.log").open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(str(self.root / "usr/lib/postgresql/15/bin" / program), *arguments),
                env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": _libraries(self.root), "LC_ALL": "C.UTF-8"},
                cwd=self.directory,
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
            )


@asynccontextmanager
async def start_postgres_15() -> AsyncIterator[Postgres15]:
    root = await asyncio.to_thread(unpack, "postgresql-15")
    with tempfile.TemporaryDirectory(prefix="attune-postgres-", ignore_cleanup_errors=True) as directory:
        server = Postgres15(root=root, directory=Path(directory))
        await server.create()
        try:
            await server.start()
            yield server
        finally:
            await server.stop()


# Both


def _unprivileged_user() -> pwd.struct_passwd | None:
    if os.getuid() != 0:
        return None
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerFailed(f"PostgreSQL refuses to run as root, and there is no user called {' or '.join(UNPRIVILEGED)}")


def _libraries(root: Path) -> str:
    """Where the unpacked libraries are; nothing for an installed server, whose libraries are in their places."""
    return "" if root == Path("/") else ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu*"))


async def _until_answered(port: int, greeting: bytes, process: Process, directory: Path) -> None:
    """Wait until the server answers a greeting of its protocol, which is later than it opens its port."""
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not await _answers(port, greeting):
        if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
            raise ServerFailed(_log_end(directory))
        await asyncio.sleep(POLL_SECONDS)


async def _answers(port: int, greeting: bytes) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(greeting)
        answer = await asyncio.wait_for(reader.read(1), POLL_SECONDS * 10)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
    return bool(answer)


async def _kill_trees(processes: Sequence[Process]) -> None:
    doomed: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(process.pid)
            doomed += [*top.children(recursive=True), top]
    for each in doomed:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    for process in processes:
        await process.wait()
    await asyncio.to_thread(psutil.wait_procs, doomed, STOP_SECONDS)


def _log_end(directory: Path) -> str:
    logs = [directory / "output.log", *directory.glob("log/*.log")]
    return "\n".join(path.read_text(errors="replace")[-2000:] for path in logs if path.exists())
