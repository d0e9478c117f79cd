"""The unprivileged account PostgreSQL runs as, and which places that account can reach.

PostgreSQL refuses to run as root. Root therefore lends it an account that already exists; accounts are never created
and permissions of existing directories are never widened.
"""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from attune.runtime.postgres_server.errors import ServerError

ACCOUNTS_FOR_ROOT = ("attune", "postgres", "nobody")
PROBE_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    name: str
    uid: int
    gid: int


class Identity(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


def choose_account(*, configured: str | None, data: Path) -> Account:
    """The caller itself, or for root: the configured account, the owner of existing data, the first that exists."""
    if os.geteuid() != 0:
        return _caller(configured)
    owner = _owner(data)
    chosen = _named(configured) if configured else owner or _first_existing()
    if chosen.uid == 0:
        raise ServerError(
            f"PostgreSQL never runs as root, but {chosen.name} is root. Name another account as embedded user."
        )
    if owner is not None and owner.uid != chosen.uid:
        raise ServerError(
            f"PostgreSQL should run as {chosen.name}, but its data in {data} belongs to {owner.name}. "
            f"Name {owner.name} as embedded user, or hand the data over: chown -R {chosen.name} {data}",
        )
    return chosen


def identity(account: Account) -> Identity:
    """What `subprocess` needs to start a program as this account."""
    if account.uid == os.geteuid():
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def run_as(
    account: Account,
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    seconds_max: float = PROBE_SECONDS_MAX,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; in "/", because the account may be unable to enter the caller's directory."""
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            cwd="/",
            env=dict(environment or {}),
            errors="replace",
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=seconds_max,
            **identity(account),
        )
    except subprocess.TimeoutExpired as error:
        raise ServerError(
            f"{command[0]} did not end within {seconds_max:.0f} seconds. Check the load and the disks of this machine.",
        ) from error


def require_entrance(account: Account, directory: Path) -> None:
    """Refuse a directory the account cannot enter, naming the one that is in the way."""
    if _enters(account, directory):
        return
    blocked = next((each for each in reversed(directory.parents) if not _enters(account, each)), directory)
    found = blocked.stat()
    raise ServerError(
        f"PostgreSQL runs as {account.name} (uid {account.uid}), which cannot enter {blocked} "
        f"(mode {found.st_mode & 0o7777:04o}, owner uid {found.st_uid}). "
        f"Choose a home that account can enter, such as /var/lib/attune, or open the way: chmod o+x {blocked}",
    )


def _enters(account: Account, directory: Path) -> bool:
    # Tried rather than computed from the mode, which knows nothing of access control lists and capabilities.
    try:
        return run_as(account, ["/bin/sh", "-c", 'cd -- "$1"', "sh", directory]).returncode == 0
    except OSError as error:
        raise ServerError(
            f"This process may not start programs as {account.name} (uid {account.uid}): {error.strerror}. "
            "Run Attune as an ordinary account, or grant it the capabilities CAP_SETUID and CAP_SETGID.",
        ) from error


def _caller(configured: str | None) -> Account:
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError as error:
        raise ServerError(
            f"PostgreSQL needs a name for the account it runs as, but uid {uid} has none. "
            f"Add a line for uid {uid} to /etc/passwd, or run Attune as an account that has one.",
        ) from error
    if configured not in (None, name):
        raise ServerError(
            f"The embedded user is {configured}, but Attune runs as {name}, and only root may change accounts. "
            "Remove the setting, or start Attune as root or as that account.",
        )
    return Account(name=name, uid=uid, gid=os.getegid())


def _owner(data: Path) -> Account | None:
    try:
        uid = data.stat().st_uid
    except FileNotFoundError:
        return None
    if uid == 0:
        # An empty directory made ready for us; a real data directory cannot belong to root.
        return None
    try:
        entry = pwd.getpwuid(uid)
    except KeyError as error:
        raise ServerError(
            f"{data} belongs to uid {uid}, which has no account. Hand the data to an account: chown -R NAME {data}",
        ) from error
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def _named(name: str) -> Account:
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise ServerError(
            f"The embedded user {name} does not exist. Create that account, or name another one."
        ) from error
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


def _first_existing() -> Account:
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ACCOUNTS_FOR_ROOT:
        if name in known:
            return _named(name)
    raise ServerError(
        f"PostgreSQL does not run as root, and none of the accounts {', '.join(ACCOUNTS_FOR_ROOT)} exists. "
        "Name an existing account as embedded user, or start Attune as an ordinary account.",
    )
