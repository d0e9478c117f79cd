"""Whom actions belong to where the worker itself is root."""

import os
import pwd
from pathlib import Path
from typing import Final

import structlog

from attune.runtime.supervise import CannotStart
from attune.worker.launcher.order import Account

DEFAULT_ACCOUNT: Final = "nobody"
# In a range that distributions leave free.
UNNAMED_UID: Final = 61_000


def choose_account(run_as: str | None, home: Path) -> Account | None:
    """The account that actions run under; None where the worker is not root and has no choice."""
    if os.geteuid() != 0:
        if run_as is not None and _look_up(run_as).uid != os.geteuid():
            raise CannotStart(f"only root can run actions as {run_as}: remove worker.run_as, or start the worker as it")
        return None
    account = _look_up(run_as or DEFAULT_ACCOUNT)
    if account.uid == 0:
        raise CannotStart("worker.run_as names root: name another account, or set worker.isolation to none")
    if account.uid != _owner_of_database(home):
        return account
    if run_as is None:
        # Its actions could read and stop the embedded PostgreSQL, which was lent this account.
        return Account(uid=UNNAMED_UID, gid=UNNAMED_UID)
    structlog.get_logger().warning(
        "worker.account_shared", account=run_as, consequence="actions can read the database", cure="another run_as"
    )
    return account


def _look_up(name: str) -> Account:
    """By name, or by number: a number needs no account behind it."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        if name.isdecimal():
            return Account(uid=int(name), gid=int(name))
        if name == DEFAULT_ACCOUNT:
            return Account(uid=UNNAMED_UID, gid=UNNAMED_UID)
        raise CannotStart(f"worker.run_as names {name}, and there is no such account") from None
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _owner_of_database(home: Path) -> int | None:
    try:
        return (home / "data" / "postgres").stat().st_uid
    except OSError:
        return None
