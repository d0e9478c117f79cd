"""Questions put to the embedded PostgreSQL with its own client programs."""

import os
import re
from pathlib import Path

from attune.runtime.postgres_server.account import Account, run_as
from attune.runtime.postgres_server.binaries import find_binaries
from attune.runtime.postgres_server.errors import ServerError
from attune.runtime.postgres_server.plan import SUPERUSER, ServerPlan, socket_directory

CLIENT_SECONDS_MAX = 60.0
DATABASE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def ensure_database(plan: ServerPlan, name: str) -> None:
    """Create a database unless it exists; two callers at once are both content."""
    if DATABASE_NAME.fullmatch(name) is None:
        raise ServerError(f"{name!r} is no database name. Use up to 63 lower-case letters, digits and underscores.")
    complaint = _run_client(plan, "psql", "--no-psqlrc", "--command=", f"--dbname={name}")
    if complaint is not None and "does not exist" in complaint:
        complaint = _run_client(plan, "createdb", "--maintenance-db=postgres", name)
    if complaint is None or "already exists" in complaint:
        return
    cure = f"Look at the log {plan.log}."
    if "authentication failed" in complaint:
        cure = f"The password is not the one {plan.data} was initialised with: restore the file that held it."
    raise ServerError(f"The database {name} in {plan.data} cannot be used: {complaint} {cure}")


def _run_client(plan: ServerPlan, program: str, *arguments: str) -> str | None:
    """None, or what the program complained about. The password travels in its environment, not its command line."""
    binaries = find_binaries(plan.bin_dir)
    variables = {
        **binaries.environment(),
        "PGHOST": str(socket_directory(plan)),
        "PGPORT": str(plan.port),
        "PGUSER": SUPERUSER,
        "PGPASSWORD": plan.password,
    }
    caller = Account(name="caller", uid=os.geteuid(), gid=os.getegid())
    command: list[str | Path] = [binaries.program(program), "--no-password", *arguments]
    done = run_as(caller, command, environment=variables, seconds_max=CLIENT_SECONDS_MAX)
    return None if done.returncode == 0 else done.stderr.strip()
