"""The data directory of the embedded PostgreSQL: initialised once, completely or not at all."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from attune.runtime.postgres_server.account import Account, run_as
from attune.runtime.postgres_server.binaries import Binaries, major_of
from attune.runtime.postgres_server.errors import ServerError
from attune.runtime.postgres_server.places import secret_file
from attune.runtime.postgres_server.plan import SUPERUSER, ServerPlan

INITDB_SECONDS_MAX = 180.0
OUTPUT_CHARACTERS_MAX = 2000
BUILTIN_LOCALES_SINCE = 17


def prepare_data(plan: ServerPlan, *, binaries: Binaries, account: Account, private: Path) -> None:
    """Check the data directory, or make it; the password is on disk for a moment, in `private`."""
    version_file = plan.data / "PG_VERSION"
    if version_file.exists():
        _require_same_major(version_file, binaries)
        return
    if plan.data.exists() and any(plan.data.iterdir()):
        raise ServerError(
            f"{plan.data} is not empty and holds no PostgreSQL data. Move it away, or choose another directory."
        )
    _remove_unfinished(plan.data)
    unfinished = Path(tempfile.mkdtemp(dir=plan.data.parent, prefix=_unfinished_prefix(plan.data)))
    os.chown(unfinished, account.uid, account.gid)
    try:
        with secret_file(plan.password, directory=private, account=account) as password_file:
            _initialise(unfinished, password_file, binaries=binaries, account=account, durable=plan.durable)
        _rename(unfinished, plan.data)
    except BaseException:
        _remove_unfinished(plan.data)
        raise


def _require_same_major(version_file: Path, binaries: Binaries) -> None:
    found = major_of(version_file.read_text(encoding="ascii", errors="replace"))
    if found == binaries.major:
        return
    raise ServerError(
        f"{version_file.parent} holds data of PostgreSQL {found}, "
        f"but the programs in {binaries.directory} are PostgreSQL {binaries.major}. "
        f"Set the directory of PostgreSQL {found} programs (bin_dir), "
        f"or dump the data with those and restore it into a new directory.",
    )


def _initialise(directory: Path, password_file: Path, *, binaries: Binaries, account: Account, durable: bool) -> None:
    command: list[str | Path] = [
        binaries.program("initdb"),
        f"--pgdata={directory}",
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth-local=scram-sha-256",
        "--auth-host=scram-sha-256",
        "--data-checksums",
        "--encoding=UTF8",
        *([] if durable else ["--no-sync"]),
    ]
    output = ""
    for locale in _locales(binaries.major):
        done = run_as(account, [*command, *locale], environment=binaries.environment(), seconds_max=INITDB_SECONDS_MAX)
        if done.returncode == 0:
            return
        output = f"{done.stdout}\n{done.stderr}"[-OUTPUT_CHARACTERS_MAX:].strip()
        if "invalid locale name" not in output:
            break
    raise ServerError(
        f"PostgreSQL {binaries.version} cannot initialise data in {directory} as {account.name}:\n{output}"
    )


def _locales(major: int) -> Sequence[Sequence[str]]:
    """The same order of text on every machine; the second choice is for systems that do not know C.UTF-8."""
    if major < BUILTIN_LOCALES_SINCE:
        return (["--locale=C.UTF-8"], ["--locale=C"])
    builtin = "--locale-provider=builtin"
    return ([builtin, "--locale=C.UTF-8"], [builtin, "--builtin-locale=C.UTF-8", "--locale=C"])


def _unfinished_prefix(data: Path) -> str:
    return f".{data.name}.initdb-"


def _remove_unfinished(data: Path) -> None:
    """Clear away what an earlier, killed initialisation left; the caller holds the start lock."""
    for left in data.parent.glob(f"{_unfinished_prefix(data)}*"):
        # An initdb that outlived its parent may still write there. It then fails, and the next start clears the rest.
        shutil.rmtree(left, ignore_errors=True)


def _rename(finished: Path, data: Path) -> None:
    try:
        finished.rename(data)
    except OSError as error:
        raise ServerError(
            f"The new data directory cannot be moved to {data}: {error.strerror}. "
            "If that is a mount point, mount its parent directory instead.",
        ) from error
    parent = os.open(data.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
