"""What an embedded PostgreSQL should be like: where it lives, who it runs as, how durable it is."""

import hashlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from attune.runtime.postgres_server.errors import ServerError

SUPERUSER = "attune"
DATABASE = "attune"

# The kernel allows 107 bytes (103 on macOS); the rest is left for clients that append to the path.
SOCKET_PATH_BYTES_MAX = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    home: Path
    data: Path
    log: Path
    password: str = field(repr=False)
    socket_directory: Path | None = None
    user: str | None = None
    bin_dir: Path | None = None
    port: int = 5432
    # Off for tests only: a crash of the machine may then lose or destroy what was committed.
    durable: bool = True

    def __post_init__(self) -> None:
        """Every path becomes absolute: the server does not share the caller's working directory."""
        for name in ("home", "data", "log", "socket_directory", "bin_dir"):
            path = getattr(self, name)
            if path is not None:
                object.__setattr__(self, name, Path(os.path.abspath(path)))  # noqa: PTH100  # Path.absolute keeps ".."
        if not self.password or not self.password.isprintable():
            raise ServerError(
                "The password of the embedded PostgreSQL must be one line of printable characters, and not empty."
            )


def socket_directory(plan: ServerPlan) -> Path:
    """Where the socket lives: as asked, or a short directory of the temp dir if that path is too long for a socket."""
    wanted = plan.socket_directory or plan.home / "run" / "postgres"
    if _suits_clients(wanted, plan.port):
        return wanted
    short = Path(tempfile.gettempdir()) / cluster_name(plan.data)
    if _suits_clients(short, plan.port):
        return short
    raise ServerError(
        f"The socket of PostgreSQL fits neither in {wanted} nor in {short}: over {SOCKET_PATH_BYTES_MAX} bytes. "
        "Set a short socket directory, or a short TMPDIR.",
    )


def socket_lock(plan: ServerPlan) -> Path:
    return socket_directory(plan) / f".s.PGSQL.{plan.port}.lock"


def cluster_name(data: Path) -> str:
    """A short name of this data directory: the same at every start, and shown in the titles of its processes."""
    return f"attune-{hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:16]}"


def _suits_clients(directory: Path, port: int) -> bool:
    # Clients read a comma in a host as the end of one of several hosts.
    path = os.fsencode(directory / f".s.PGSQL.{port}")
    return len(path) <= SOCKET_PATH_BYTES_MAX and b"," not in path
