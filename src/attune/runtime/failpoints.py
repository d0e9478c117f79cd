"""Named places where a test can make this process die, stall, fail or skip a step.

Armed by ATTUNE_FAILPOINTS, for example `outbox.publish=kill@3;lease.renew=raise@p0.05;start=sleep:0.5`:
without `@` at every hit, `@3` at the third hit only, `@p0.05` at one hit in twenty. Unarmed, a failpoint
costs one test of a flag.
"""

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

VARIABLE: Final = "ATTUNE_FAILPOINTS"
SEED_VARIABLE: Final = "ATTUNE_FAILPOINTS_SEED"
SLEEP_MAX_SECONDS: Final = 3600.0

_ENTRY: Final = re.compile(
    r"(?P<name>[a-z0-9_.]+)=(?P<action>[a-z]+)(:(?P<seconds>[0-9.]+))?(@(?P<hit>[0-9]+)|@p(?P<chance>[0-9.]+))?"
)


class FailpointError(ValueError):
    """The list of failpoints cannot be read."""


class FailpointRaised(Exception):
    """The failure that was asked for; no code expects it, which is its use."""


class Action(StrEnum):
    KILL = "kill"
    RAISE = "raise"
    SLEEP = "sleep"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint:
    """What to do at a name, and at which hits; neither hit nor chance means always."""

    name: str
    action: Action
    seconds: float = 0.0
    hit: int | None = None
    chance: float | None = None


@dataclass(slots=True, kw_only=True)
class _Arming:
    """State of this process: failpoints are global by nature, for they sit in the middle of everything."""

    armed: Mapping[str, Failpoint]
    hits: dict[str, int]
    dice: random.Random
    recording: bool


_arming: Final = _Arming(armed={}, hits={}, dice=random.Random(), recording=False)  # noqa: S311  draws of a test


def arm_failpoints(text: str, *, seed: int | None = None) -> None:
    """Replace what is armed; an empty text disarms. Hits are counted from now on, unless disarmed."""
    _arming.armed = {one.name: one for one in parse_failpoints(text)}
    _arming.recording = bool(_arming.armed)
    _arming.hits.clear()
    _arming.dice.seed(seed)


def arm_from_environment(environment: Mapping[str, str]) -> None:
    """Arm what ATTUNE_FAILPOINTS says; called once when a service starts."""
    seed = environment.get(SEED_VARIABLE, "")
    if seed and not seed.isdecimal():
        raise FailpointError(f"{SEED_VARIABLE} must be a whole number, not {seed!r}")
    arm_failpoints(environment.get(VARIABLE, ""), seed=int(seed) if seed else None)


def record_failpoints() -> None:
    """Count hits although nothing is armed."""
    _arming.recording = True


def failpoint_hits() -> Mapping[str, int]:
    """How often each name was passed since arming; an armed name that is absent was never reached."""
    return dict(_arming.hits)


def failpoint(name: str) -> bool:
    """Do what is armed here; True asks the caller to skip the step. Sleeping blocks the whole loop."""
    if not _arming.recording:
        return False
    fired = _fire(name)
    if fired is not None and fired.action is Action.SLEEP:
        time.sleep(fired.seconds)
    return fired is not None and fired.action is Action.DROP


async def afailpoint(name: str) -> bool:
    """The same, but only the calling task sleeps."""
    if not _arming.recording:
        return False
    fired = _fire(name)
    if fired is not None and fired.action is Action.SLEEP:
        await asyncio.sleep(fired.seconds)
    return fired is not None and fired.action is Action.DROP


def parse_failpoints(text: str) -> list[Failpoint]:
    """Read `name=action[:seconds][@hit|@pchance]`, separated by semicolons."""
    entries = [_parse_entry(part.strip()) for part in text.split(";") if part.strip()]
    names = [one.name for one in entries]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise FailpointError(f"armed twice: {', '.join(sorted(doubled))}")
    return entries


def _fire(name: str) -> Failpoint | None:
    """Count the hit, and act at once where acting does not need the caller."""
    count = _arming.hits[name] = _arming.hits.get(name, 0) + 1
    armed = _arming.armed.get(name)
    if armed is None or not _is_due(armed, count):
        return None
    if armed.action is Action.KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if armed.action is Action.RAISE:
        raise FailpointRaised(f"failpoint {name}, hit {count}")
    return armed


def _is_due(armed: Failpoint, count: int) -> bool:
    if armed.chance is not None:
        return _arming.dice.random() < armed.chance
    return armed.hit is None or count == armed.hit


def _parse_entry(part: str) -> Failpoint:
    match = _ENTRY.fullmatch(part)
    if match is None:
        raise FailpointError(f"{part!r} is not of the form name=action[:seconds][@hit|@pchance]")
    if match["action"] not in set(Action):
        raise FailpointError(f"{part!r}: unknown action; there are {', '.join(Action)}")
    action = Action(match["action"])
    if (action is Action.SLEEP) != (match["seconds"] is not None):
        raise FailpointError(f"{part!r}: sleep, and only sleep, needs seconds, as in sleep:0.5")
    return Failpoint(
        name=match["name"],
        action=action,
        seconds=_number(part, match["seconds"] or "0", low=0, high=SLEEP_MAX_SECONDS),
        hit=None if match["hit"] is None else int(_number(part, match["hit"], low=1, high=1e9)),
        chance=None if match["chance"] is None else _number(part, match["chance"], low=0, high=1),
    )


def _number(part: str, text: str, *, low: float, high: float) -> float:
    try:
        number = float(text)
    except ValueError:
        raise FailpointError(f"{part!r}: {text!r} is not a number") from None
    if not low <= number <= high:
        raise FailpointError(f"{part!r}: {text} is not between {low:g} and {high:g}")
    return number
