"""Which Python runs actions: one that the account of actions sees exactly as the worker does, and never a silent other.

Under another account an interpreter may not be reachable, or may load another library than its own: so it is asked who
it is under both accounts, and the answers must agree.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.worker.runtimes.ask import Answer, Ask, NotOffered, find_closed

SYSTEM_PYTHON: Final = Path("/usr/bin/python3")
OLDEST: Final = (3, 11)
PROBE: Final = (
    "import json, ssl, sys; print(json.dumps({'version': sys.version, 'numbers': sys.version_info[:3],"
    " 'base_prefix': sys.base_prefix, 'implementation': sys.implementation.name, 'ssl': ssl.OPENSSL_VERSION}))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """One Python and who it says it is; `note` tells why it is not the one to be expected."""

    path: Path
    version: str
    numbers: tuple[int, ...]
    base_prefix: str
    implementation: str
    ssl: str
    note: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """What an environment made for it depends on."""
        return (str(self.path), self.version, self.base_prefix, self.implementation)

    def describe(self) -> str:
        """For people."""
        numbers = ".".join(str(number) for number in self.numbers)
        return f"{numbers} ({self.path})" + (f"; {self.note}" if self.note else "")


async def find_python(configured: Path | None, *, as_worker: Ask, as_actions: Ask) -> Interpreter:
    """The interpreter for actions; raises NotOffered with every reason. A configured one has no substitute."""
    own = Path(getattr(sys, "_base_executable", sys.executable))
    candidates = [configured] if configured else [own, SYSTEM_PYTHON]
    reasons: list[str] = []
    for candidate in candidates:
        try:
            found = await examine(candidate, as_worker=as_worker, as_actions=as_actions)
        except NotOffered as error:
            reasons.append(str(error))
            continue
        note = f"not the worker's own, because {reasons[0]}" if reasons else ""
        return Interpreter(path=candidate, note=note, **found)  # type: ignore[arg-type]  # read from our own probe
    raise NotOffered("; ".join(reasons))


async def examine(path: Path, *, as_worker: Ask, as_actions: Ask) -> dict[str, object]:
    """What an interpreter says about itself; raises NotOffered unless it is the same for the worker and for actions."""
    command: Sequence[str] = [str(path), "-I", "-c", PROBE]
    own = _read(await as_worker(command))
    if isinstance(own, str):
        raise NotOffered(f"{path} does not run: {own}")
    if tuple(own["numbers"])[:2] < OLDEST:  # type: ignore[arg-type]  # read from our own probe
        raise NotOffered(f"{path} is older than {OLDEST[0]}.{OLDEST[1]}")
    seen = _read(await as_actions(command))
    if isinstance(seen, str):
        closed = await find_closed(path, as_actions)
        why = f"they cannot enter {closed}" if closed else seen
        raise NotOffered(f"{path} does not run under the account of actions: {why}")
    if seen != own:
        other = str(seen["version"]).split()[0]
        raise NotOffered(f"{path} is another Python under the account of actions: {other} in {seen['base_prefix']}")
    return {**own, "numbers": tuple(own["numbers"])}  # type: ignore[arg-type]  # read from our own probe


def _read(answer: Answer) -> dict[str, object] | str:
    """The facts, or the reason why there are none."""
    last = answer.said.strip().splitlines()[-1:] or ["it said nothing"]
    if answer.code != 0:
        return last[0]
    try:
        facts = json.loads(last[0])
    except ValueError:
        return f"it answered {last[0]!r}"
    return facts if isinstance(facts, dict) else f"it answered {last[0]!r}"
