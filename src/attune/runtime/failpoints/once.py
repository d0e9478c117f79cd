"""One time on a whole platform: processes agree, by the names of files in a folder, who was the first to fire.

The folder remembers what a killed process cannot, so a point that kills its process does not kill the next one too.
What is in it afterwards is the record of what was reached.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attune.runtime.clock import utc_now
from attune.runtime.failpoints.entries import Action, Failpoint
from attune.runtime.failpoints.registry import DECLARED, Declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which of the declared points a run has fired at."""

    killed: frozenset[str]
    # Something else than a kill was armed there, and happened.
    fired: frozenset[str]
    not_reached: frozenset[str]

    def __str__(self) -> str:
        count = len(self.killed) + len(self.fired) + len(self.not_reached)
        return "\n".join(
            [
                f"failpoints: {len(self.killed)} of {count} killed a process, {len(self.fired)} did something else",
                *(f"  not reached: {name}" for name in sorted(self.not_reached)),
            ]
        )


def claim(folder: Path, armed: Failpoint, *, process: str, hit: int) -> bool:
    """Write down that this process fires here; False if one has before."""
    said = {
        "process": process,
        "pid": os.getpid(),
        "action": armed.action,
        "hit": hit,
        "at": utc_now().isoformat(timespec="milliseconds"),
    }
    try:
        descriptor = os.open(folder / armed.name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, json.dumps(said).encode())
    finally:
        os.close(descriptor)
    return True


def coverage(folder: Path, declared: Mapping[str, Declared] = DECLARED) -> Coverage:
    """What the record of a run says about every declared point."""
    # An empty file is from a process that something else killed while it wrote.
    said = {path.name: json.loads(path.read_text() or "{}") for path in folder.iterdir() if path.name in declared}
    actions = {name: record.get("action") for name, record in said.items()}
    killed = frozenset(name for name, action in actions.items() if action == Action.KILL)
    return Coverage(
        killed=killed, fired=frozenset(actions) - killed, not_reached=frozenset(declared) - frozenset(actions)
    )
