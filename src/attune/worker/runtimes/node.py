"""Which Node runs actions, and whether there is an npm to install what they need."""

import asyncio
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.worker.runners.script import PATH
from attune.worker.runtimes.ask import Ask, NotOffered, find_closed

OLDEST: Final = 18
_VERSION: Final = re.compile(r"v(\d+)\.\d+\.\d+\S*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One Node; without npm it runs what needs no packages."""

    path: Path
    version: str
    npm: Path | None

    def describe(self) -> str:
        """For people."""
        lacking = "" if self.npm else "; without npm, so that packs with packages cannot run"
        return f"{self.version} ({self.path}){lacking}"


async def find_node(configured: Path | None, *, as_actions: Ask) -> Node:
    """The Node for actions; raises NotOffered with the reason. A configured one has no substitute, nor has its npm."""
    searched = PATH if configured is None else str(configured.parent)
    path, npm = configured or _which("node", searched), _which("npm", searched)
    if path is None:
        raise NotOffered("there is no node on the search path, and worker.node names none")
    answer = await as_actions([str(path), "--version"])
    found = _VERSION.fullmatch(answer.said.strip())
    if answer.code != 0 or found is None:
        reached = await asyncio.to_thread(path.exists)
        closed = await find_closed(path, as_actions) if reached else None
        why = f"they cannot enter {closed}" if closed else answer.said.strip()[-200:]
        raise NotOffered(f"{path} does not run under the account of actions: {why}")
    if int(found[1]) < OLDEST:
        raise NotOffered(f"{path} is {found[0]}, older than {OLDEST}")
    return Node(path=path, version=found[0], npm=npm)


def _which(program: str, searched: str) -> Path | None:
    found = shutil.which(program, path=searched)
    return Path(found) if found else None
