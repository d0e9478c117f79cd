"""The failpoints of this process: what is armed, how often each was passed, and what happens there."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.runtime.failpoints.entries import Action, Failpoint, FailpointError, parse_failpoints, refuse_undeclared
from attune.runtime.failpoints.once import claim
from attune.runtime.failpoints.registry import DECLARED, Declared

VARIABLE: Final = "ATTUNE_FAILPOINTS"
SEED_VARIABLE: Final = "ATTUNE_FAILPOINTS_SEED"
FOLDER_VARIABLE: Final = "ATTUNE_FAILPOINTS_FOLDER"


class FailpointRaised(Exception):
    """The failure that was asked for; no code expects it, which is its use."""


@dataclass(slots=True, kw_only=True)
class _Arming:
    """State of this process: failpoints are global by nature, for they sit in the middle of everything."""

    armed: dict[str, Failpoint]
    hits: dict[str, int]
    dice: random.Random
    recording: bool
    # Where the processes of a platform agree on who fires; None: each on its own.
    folder: Path | None
    process: str


_arming: Final = _Arming(armed={}, hits={}, dice=random.Random(), recording=False, folder=None, process="")  # noqa: S311  draws of a test


def arm_failpoints(
    text: str,
    *,
    seed: int | None = None,
    folder: Path | None = None,
    process: str = "",
    service: str | None = None,
    declared: Mapping[str, Declared] = DECLARED,
) -> None:
    """Replace what is armed; an empty text disarms. Hits are counted from now on, unless disarmed.

    A process that says which service it is arms what the registry declares for that one only.
    """
    entries = parse_failpoints(text)
    refuse_undeclared(entries, declared)
    if folder is not None and entries:
        folder.mkdir(parents=True, exist_ok=True)
    _arming.armed = {one.name: one for one in entries if service is None or service in declared[one.name].services}
    _arming.recording = bool(_arming.armed)
    _arming.folder, _arming.process = folder, process
    _arming.hits.clear()
    _arming.dice.seed(seed)


def arm_from_environment(environment: Mapping[str, str], *, process: str = "", service: str | None = None) -> None:
    """Arm what ATTUNE_FAILPOINTS says; called once when a process starts, which tells what it is."""
    seed = environment.get(SEED_VARIABLE, "")
    if seed and not seed.isdecimal():
        raise FailpointError(f"{SEED_VARIABLE} must be a whole number, not {seed!r}")
    folder = environment.get(FOLDER_VARIABLE, "")
    arm_failpoints(
        environment.get(VARIABLE, ""),
        seed=int(seed) if seed else None,
        folder=Path(folder) if folder else None,
        process=process,
        service=service,
    )


def record_failpoints() -> None:
    """Count hits although nothing is armed."""
    _arming.recording = True


def failpoint_hits() -> Mapping[str, int]:
    """How often each name was passed since arming; an armed name that is absent was never reached."""
    return dict(_arming.hits)


def failpoint(name: str, *, unknown: type[Exception] | None = None) -> bool:
    """Do what is armed here; True asks the caller to skip the step. Sleeping blocks the whole loop.

    Where a step is done and its answer could be lost, `unknown` is the error that whoever asked would see.
    """
    if not _arming.recording:
        return False
    fired = _fire(name, unknown)
    if fired is not None and fired.action is Action.SLEEP:
        time.sleep(fired.seconds)
    return fired is not None and fired.action is Action.DROP


async def afailpoint(name: str, *, unknown: type[Exception] | None = None) -> bool:
    """The same, but only the calling task sleeps."""
    if not _arming.recording:
        return False
    fired = _fire(name, unknown)
    if fired is not None and fired.action is Action.SLEEP:
        await asyncio.sleep(fired.seconds)
    return fired is not None and fired.action is Action.DROP


def _fire(name: str, unknown: type[Exception] | None) -> Failpoint | None:
    """Count the hit, and act at once where acting does not need the caller."""
    count = _arming.hits[name] = _arming.hits.get(name, 0) + 1
    armed = _arming.armed.get(name)
    if armed is None or not _is_due(armed, count) or not _is_ours(armed, count):
        return None
    if armed.action is Action.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if armed.action is Action.RAISE:
        raise FailpointRaised(f"failpoint {name}, hit {count}")
    if armed.action is Action.UNKNOWN and unknown is not None:
        raise unknown(f"failpoint {name}, hit {count}: it was done, and the answer is lost")
    return armed


def _is_due(armed: Failpoint, count: int) -> bool:
    if armed.chance is not None:
        return _arming.dice.random() < armed.chance
    return armed.hit is None or count == armed.hit


def _is_ours(armed: Failpoint, count: int) -> bool:
    """Whether no process of the platform was here first; always, unless they share a folder."""
    if _arming.folder is None:
        return True
    first = claim(_arming.folder, armed, process=_arming.process, hit=count)
    # What leaves the process alive goes on by chance; anything else was meant for one time. Who was not the first stays
    # armed: whoever removes the file lets the point fire once more.
    return first or (armed.chance is not None and armed.action is not Action.KILL)
