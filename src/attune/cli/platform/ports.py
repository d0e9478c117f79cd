"""Whether the API's port is free, and who has it if not."""

import errno
import socket

import psutil

from attune.cli.exits import CommandFailed, Exit


def require_free(host: str, port: int) -> None:
    """Refuse a port we cannot listen on, naming the process that does."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        raise _refusal(host, port, error) from error


def _refusal(host: str, port: int, error: OSError) -> CommandFailed:
    if error.errno == errno.EADDRINUSE:
        message = f"port {port} on {host} is in use by {_owner(port)}. Stop that, or choose another with --port"
        return CommandFailed(message, exit_code=Exit.INVALID)
    if error.errno == errno.EACCES:
        message = f"this account may not listen on port {port}. Choose one above 1023 with --port"
        return CommandFailed(message, exit_code=Exit.INVALID)
    reason = error.strerror or error
    return CommandFailed(f"cannot listen on {host} port {port}: {reason}. Check api.host", exit_code=Exit.INVALID)


def _owner(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:  # Only root sees the processes of others.
        pass
    return "another process"
