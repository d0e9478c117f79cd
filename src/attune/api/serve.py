"""Listens on a port and serves the API inside this process."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Final

import psutil
import structlog
import uvicorn
from litestar import Litestar

from attune.api.app import STOPPING_KEY
from attune.runtime.supervise import CannotStart

BACKLOG: Final = 2048
GRACE_SECONDS: Final = 5
KEEP_ALIVE_SECONDS: Final = 30


class _Server(uvicorn.Server):
    """A server that leaves signals to the service it is part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_api(app: Litestar, *, host: str, port: int, stop: asyncio.Event) -> None:
    """Serve until told to stop; open requests get a few seconds to end."""
    listener = bind(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config)
    watcher = asyncio.create_task(_stop_when_told(server, app, stop), name="api-stop")
    try:
        structlog.get_logger().info("api.listening", host=host, port=listener.getsockname()[1])
        await server.serve(sockets=[listener])
    except SystemExit as error:
        # How uvicorn says that the application did not start; its reason is in the log.
        raise CannotStart("the API did not start; the log has the reason") from error
    finally:
        watcher.cancel()
        listener.close()


async def _stop_when_told(server: uvicorn.Server, app: Litestar, stop: asyncio.Event) -> None:
    await stop.wait()
    app.state[STOPPING_KEY]()
    server.should_exit = True


def bind(host: str, port: int) -> socket.socket:
    """Take the port, or say who has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise CannotStart(_explain(host, port, error)) from error
    return listener


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use by {_owner_of(port)}; stop it or choose another port (api.port)"
    if error.errno == errno.EACCES:
        return f"this user may not listen on port {port}; choose one above 1023 (api.port)"
    return f"cannot listen on {host} port {port}: {error.strerror or error} (settings api.host, api.port)"


def _owner_of(port: int) -> str:
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                if connection.pid is None:
                    break
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        pass
    return "another process, which this user may not look into"
