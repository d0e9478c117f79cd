"""What ATTUNE_FAILPOINTS says: which failpoints are armed, with what, at which hits."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from attune.runtime.failpoints.registry import Declared

SLEEP_MAX_SECONDS: Final = 3600.0

_ENTRY: Final = re.compile(
    r"(?P<name>[a-z0-9_.]+)=(?P<action>[a-z]+)(:(?P<seconds>[0-9.]+))?(@(?P<hit>[0-9]+)|@p(?P<chance>[0-9.]+))?"
)


class FailpointError(ValueError):
    """The list of failpoints cannot be read."""


class Action(StrEnum):
    """What can happen at a failpoint."""

    KILL = "kill"
    RAISE = "raise"
    SLEEP = "sleep"
    DROP = "drop"
    # The step was done, and whoever asked for it sees the error of an outcome nobody knows.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint:
    """What to do at a name, and at which hits; neither hit nor chance means always."""

    name: str
    action: Action
    seconds: float = 0.0
    hit: int | None = None
    chance: float | None = None


def parse_failpoints(text: str) -> list[Failpoint]:
    """Read `name=action[:seconds][@hit|@pchance]`, separated by semicolons."""
    entries = [_parse_entry(part.strip()) for part in text.split(";") if part.strip()]
    names = [one.name for one in entries]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise FailpointError(f"armed twice: {', '.join(sorted(doubled))}")
    return entries


def refuse_undeclared(entries: Iterable[Failpoint], declared: Mapping[str, Declared]) -> None:
    """A misspelt name would never fire, and a test that waits for it would prove nothing."""
    for entry in entries:
        if entry.name not in declared:
            near = difflib.get_close_matches(entry.name, declared, n=1, cutoff=0.0)
            raise FailpointError(f"there is no failpoint {entry.name!r}; the nearest is {', '.join(near)!r}")
        if entry.action is Action.UNKNOWN and not declared[entry.name].answered:
            able = ", ".join(name for name, one in declared.items() if one.answered)
            raise FailpointError(f"{entry.name} has no answer that could be lost; these have: {able}")


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
