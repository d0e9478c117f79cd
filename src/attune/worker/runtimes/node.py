"""Which Node runs actions, and whether there is an npm to install what they need."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.worker.runners.script import PATH
from attune.worker.runtimes.ask import Ask, NotOffered

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


async def find_node(*, as_actions: Ask) -> Node:
    """The Node on the search path that scripts are given; raises NotOffered."""
    path, npm = shutil.which("node", path=PATH), shutil.which("npm", path=PATH)
    if path is None:
        raise NotOffered("there is no node on this machine")
    answer = await as_actions([path, "--version"])
    found = _VERSION.fullmatch(answer.said.strip())
    if answer.code != 0 or found is None:
        raise NotOffered(f"{path} does not run under the account of actions: {answer.said.strip()[-200:]}")
    if int(found[1]) < OLDEST:
        raise NotOffered(f"{path} is {found[0]}, older than {OLDEST}")
    return Node(path=Path(path), version=found[0], npm=Path(npm) if npm else None)
