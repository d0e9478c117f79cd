"""How the `node_modules` of a pack are made: by npm, exactly as the lock says, running no scripts of packages."""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.worker.environments.build import Builder
from attune.worker.environments.sources import kept_environment
from attune.worker.environments.store import FOLDER_MODE, Recipe
from attune.worker.runners.script import PATH

KIND: Final = "node"
_QUIET: Final = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnvironments:
    """Makes recipes for one Node and its npm."""

    node: Path
    npm: Path
    version: str
    builder: Builder
    cache: Path
    # The worker's own variables, of which npm is given what concerns it.
    variables: Mapping[str, str]

    def recipe(self, files: Mapping[str, bytes]) -> Recipe:
        """The recipe for a lock with the files it needs."""
        digest = hashlib.sha256(f"{KIND} {self.version} {platform.machine()}".encode())
        for name, content in sorted(files.items()):
            digest.update(f"\0{name}\0{hashlib.sha256(content).hexdigest()}".encode())

        async def build(place: Path) -> None:
            _write(place, files)
            await self._install(place)

        return Recipe(kind=KIND, key=digest.hexdigest()[:32], label=f"Node {self.version}", build=build)

    async def _install(self, place: Path) -> None:
        told = {
            **kept_environment(self.variables, prefix="npm_config_"),
            # npm is a script that asks the search path for its Node.
            "PATH": f"{self.node.parent}:{PATH}",
            "npm_config_cache": str(self.cache),
        }
        command = [str(self.npm), "ci", "--ignore-scripts", "--omit=dev", *_QUIET]
        await self.builder.run(command, told, directory=place)


def _write(place: Path, files: Mapping[str, bytes]) -> None:
    place.mkdir(mode=FOLDER_MODE)
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
