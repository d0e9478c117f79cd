"""How the Python environment of a pack is made: by uv, with exactly what the lock names, from wheels only."""

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uv

from attune.packs.locks import PYTHON_LOCK, read_requirements
from attune.worker.environments.build import Builder, BuildFailed
from attune.worker.environments.sources import uv_environment
from attune.worker.environments.store import Recipe
from attune.worker.runtimes.ask import Ask, NotOffered
from attune.worker.runtimes.python import Interpreter, examine

KIND: Final = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEnvironments:
    """Makes recipes for one interpreter."""

    interpreter: Interpreter
    builder: Builder
    cache: Path
    # The worker's own variables, of which uv is given what concerns it.
    variables: Mapping[str, str]
    as_worker: Ask
    as_actions: Ask

    def describe(self) -> str:
        """For people."""
        return self.interpreter.describe()

    def recipe(self, lock: bytes) -> Recipe:
        """The recipe for a lock; the same lock and interpreter have the same key, whatever pack they belong to."""
        parts = json.dumps([KIND, *self.interpreter.identity, platform.machine()]).encode()
        key = hashlib.sha256(parts + b"\0" + lock).hexdigest()[:32]
        count = len(read_requirements(lock))
        label = f"Python {'.'.join(map(str, self.interpreter.numbers))}, {count} package{'s' * (count != 1)}"

        async def build(place: Path) -> None:
            await self._build(place, lock)

        return Recipe(kind=KIND, key=key, label=label, build=build)

    async def _build(self, place: Path, lock: bytes) -> None:
        program = str(uv.find_uv_bin())
        told = uv_environment(self.variables, cache=self.cache)
        python = place / "bin" / "python"
        lock_file = place / PYTHON_LOCK
        # Relocatable, because it is made aside and then moved to its place.
        venv = ["venv", "--quiet", "--no-project", "--relocatable", "--python", str(self.interpreter.path), str(place)]
        await self.builder.run([program, *venv], told, directory=place.parent)
        lock_file.write_bytes(lock)
        # From wheels only: building would run somebody's code under the worker's account. Compiled once, because
        # the account of actions cannot write here.
        install = ["sync", "--quiet", "--require-hashes", "--only-binary", ":all:", "--compile-bytecode"]
        for words in ([*install, str(lock_file)], ["check", "--quiet"]):
            command = [program, "pip", words[0], "--python", str(python), *words[1:]]
            await self.builder.run(command, told, directory=place)
        await self._verify(python)

    async def _verify(self, python: Path) -> None:
        """Actions must be able to start it, and must find in it the interpreter it was made for."""
        try:
            facts = await examine(python, as_worker=self.as_worker, as_actions=self.as_actions)
        except NotOffered as error:
            raise BuildFailed(str(error)) from None
        if facts["version"] != self.interpreter.version:
            raise BuildFailed(f"the environment has Python {facts['version']}, not {self.interpreter.version}")
