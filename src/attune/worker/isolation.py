"""How far actions are kept from the worker and from each other: which levels this machine allows, and their walls.

Every level is tried out before it is promised, with the account, the directory and the launcher that actions get.
"""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from attune.domain.definitions import Isolation
from attune.domain.placement import LEVELS, choose_level
from attune.runtime.supervise import CannotStart
from attune.worker.accounts import choose_account
from attune.worker.launcher.child import LauncherLost
from attune.worker.launcher.client import CONFINED, Launcher
from attune.worker.launcher.order import CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, Account, Order, Walls
from attune.worker.plan import Bounds, WorkerPlan
from attune.worker.processes import Children, count_threads
from attune.worker.runners.workspace import hand_over, make_directory, remove_directory

PROBE_SECONDS_MAX: Final = 10.0
MEBIBYTE: Final = 1024 * 1024
# Enters each directory, then shows who it is and which number it has; nothing but the shell is needed.
_TRY: Final = (
    'for each; do cd -- "$each" || exit 9; done; [ -w . ] || exit 9; '
    "while read -r name value _; do [ $name = Uid: ] && echo $value; done < /proc/self/status; echo $$"
)
_NOT_ALLOWED: Final = 9
# The first process of a namespace is the one that waits there; the next is the action.
_SECOND: Final = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What this worker can give its actions."""

    # What every action gets that asks for nothing more.
    usual: Isolation
    walls: Mapping[Isolation, Walls] = field(default_factory=dict)

    @property
    def highest(self) -> Isolation:
        return max(self.walls, key=LEVELS.index)

    @property
    def shown(self) -> str:
        """The usual level; where it means that every action is root, that is said."""
        return f"{self.usual} (root)" if self.usual is Isolation.NONE and os.geteuid() == 0 else str(self.usual)

    def walls_for(self, demanded: str | None) -> Walls | None:
        """None if this worker cannot give what is demanded."""
        wanted = Isolation(demanded) if demanded is not None else None
        level = choose_level(self.walls, usual=self.usual, demanded=wanted)
        return self.walls[level] if level is not None else None


async def confine(plan: WorkerPlan, children: Children) -> tuple[Launcher, Confinement]:
    """Start the launcher and find out what it can do; raises CannotStart if that is less than the settings demand."""
    wanted = plan.isolation
    account = choose_account(plan.run_as, plan.home)
    gives_up_root = account is not None and wanted is not Isolation.NONE
    launcher = Launcher(children, flags=[CONFINED] if gives_up_root else [])
    launcher.start()
    try:
        found = await _try_levels(plan, launcher, account)
    except BaseException:
        launcher.stop()
        raise
    least = wanted or (Isolation.USER if Isolation.USER in found.walls else Isolation.NONE)
    usual = choose_level(found.walls, usual=least, demanded=None)
    if usual is None:
        launcher.stop()
        raise CannotStart(f"worker.isolation is {wanted}, and this machine does not allow it: {found.obstacle}")
    if gives_up_root and usual is Isolation.NONE:
        # It had given up what root may do; actions run as root after all.
        launcher.stop()
        launcher = Launcher(children)
        launcher.start()
    _tell(usual, found)
    return launcher, Confinement(usual=usual, walls=found.walls)


@dataclass(slots=True, kw_only=True)
class _Found:
    walls: dict[Isolation, Walls]
    obstacle: str = ""


async def _try_levels(plan: WorkerPlan, launcher: Launcher, account: Account | None) -> _Found:
    limits = _limits(plan.bounds, account)
    found = _Found(walls={Isolation.NONE: Walls(limits=limits)})
    if account is not None:
        walls = Walls(account=account, limits=limits)
        if not await _try(plan, launcher, walls, found):
            return found
        found.walls[Isolation.USER] = walls
    spaces = CLONE_NEWPID | CLONE_NEWNS
    if account is None and os.geteuid() != 0:
        # Whoever is not root needs a user namespace to make the others, and is counted apart in it.
        spaces |= CLONE_NEWUSER
        limits = {**limits, **_count_limit(plan.bounds, existing=0)}
    elif account is None:
        return found
    walls = Walls(account=account, limits=limits, spaces=spaces)
    if await _try(plan, launcher, walls, found):
        found.walls[Isolation.NAMESPACE] = walls
    return found


async def _try(plan: WorkerPlan, launcher: Launcher, walls: Walls, found: _Found) -> bool:
    """Run a small script behind these walls, where actions will run; what is not allowed is noted.

    Raises CannotStart if another account failed for any other reason: a moment without room or processes must not
    lead to actions that run as root.
    """
    directory = _make_directory(plan)
    try:
        hand_over(directory, walls.account)
        words = ["/bin/sh", "-c", _TRY, "sh", *_way_to(plan.packs), *_way_to(directory)]
        order = Order(words=words, environment={"PATH": "/usr/bin:/bin"}, directory=Path("/"), walls=walls)
        done = await launcher.probe(order, seconds_max=PROBE_SECONDS_MAX)
    except (OSError, LauncherLost) as error:
        if not walls.spaces and not isinstance(error, PermissionError):
            raise CannotStart(f"cannot find out how far actions can be kept apart: {error!r}") from error
        found.obstacle = str(error) or type(error).__name__
        return False
    finally:
        await remove_directory(directory)
    uid = walls.account.uid if walls.account is not None else os.geteuid()
    if done.exit_code == 0 and done.stdout.split() == [str(uid), _SECOND if walls.spaces else str(done.pid)]:
        return True
    found.obstacle = f"uid {uid}: {done.stderr.strip() or f'exit code {done.exit_code}'}"
    if not walls.spaces and done.exit_code != _NOT_ALLOWED:
        raise CannotStart(f"cannot find out how far actions can be kept apart: {found.obstacle}")
    return False


def _make_directory(plan: WorkerPlan) -> Path:
    try:
        return make_directory(plan.scratch, 0)
    except OSError as error:
        raise CannotStart(f"cannot write below {plan.scratch}: {error.strerror}") from error


def _way_to(directory: Path) -> list[str]:
    """Every directory on the way there, as far as they exist."""
    return [str(each) for each in (*reversed(directory.parents), directory) if each.is_dir()]


def _limits(bounds: Bounds, account: Account | None) -> dict[int, int]:
    limits = {
        # What a process can write to, other than files; the size of its address space would say little of that.
        resource.RLIMIT_DATA: bounds.memory_mb * MEBIBYTE,
        resource.RLIMIT_CPU: bounds.cpu_seconds,
        resource.RLIMIT_NOFILE: bounds.files,
        resource.RLIMIT_FSIZE: bounds.file_size_mb * MEBIBYTE,
    }
    owner = account.uid if account is not None else os.geteuid()
    counted = _count_limit(bounds, existing=count_threads(owner))
    # A limit of 0 is none; only dumps are really forbidden.
    return {number: most for number, most in limits.items() if most} | counted | {resource.RLIMIT_CORE: 0}


def _count_limit(bounds: Bounds, *, existing: int) -> dict[int, int]:
    """The system counts all processes of an account, so those that are there already are allowed on top."""
    return {resource.RLIMIT_NPROC: bounds.processes + existing} if bounds.processes else {}


def _tell(usual: Isolation, found: _Found) -> None:
    log = structlog.get_logger()
    if usual is Isolation.NONE and os.geteuid() == 0:
        log.warning(
            "worker.isolation_none_as_root",
            consequence="actions have every right of root",
            obstacle=found.obstacle or "worker.isolation is none",
            cure="let the account of worker.run_as enter the home, or run the worker under an account of its own",
        )
    highest = max(found.walls, key=LEVELS.index)
    log.info("worker.isolation", usual=str(usual), highest=str(highest), obstacle=found.obstacle or None)
