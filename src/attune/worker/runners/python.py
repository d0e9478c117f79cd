"""Python actions: in the pack's own environment if it has a lock, else in the plain interpreter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.domain.definitions import PythonOptions
from attune.packs.locks import python_lock
from attune.packs.read import read_python_options
from attune.packs.store import content_folder
from attune.storage.executions import Startable
from attune.worker.environments.python import PythonEnvironments
from attune.worker.environments.store import Environments, Recipe, Say
from attune.worker.forking.pool import ForkServers, Warm
from attune.worker.launcher.order import Account, Walls
from attune.worker.runners.contract import Unrunnable
from attune.worker.runners.protocol import Attempt
from attune.worker.runners.script import Command, entry_file, environment_for
from attune.worker.runners.workspace import FAILURE_FILE
from attune.worker.runtimes.ask import NotOffered

# Packs whose needs are remembered: a content never changes. Beyond this all are read again.
REMEMBERED_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    """What a pack says about its Python; None needs no packages."""

    recipe: Recipe | None
    options: PythonOptions


class PythonLanguage:
    """A script, or a file with a function `run`; both through the host program."""

    def __init__(
        self,
        packs: Path,
        host: Path,
        environments: Environments,
        *,
        pythons: Mapping[Account | None, PythonEnvironments | NotOffered],
        walls_of: Callable[[Startable], Walls | None],
        servers: ForkServers | None,
    ) -> None:
        self._packs = packs
        self._host = host
        self._environments = environments
        self.pythons = pythons
        self._walls_of = walls_of
        self._servers = servers
        self._known: dict[tuple[Path, Path], _Needs] = {}

    async def prepare(self, attempt: Attempt, directory: Path, say: Say) -> Command:
        work = attempt.work
        folder = content_folder(self._packs, work.pack_ref, work.pack_digest)
        entry = entry_file(folder, work)
        walls = self._walls_of(work) or Walls()
        making = self.pythons[walls.account]
        if isinstance(making, NotOffered):
            raise Unrunnable("missing_interpreter", f"there is no Python at isolation {work.isolation}: {making}")
        python = making.interpreter.path
        needs = self._needs(folder, making)
        if needs.recipe is not None:
            python = await environment_for(attempt, needs.recipe, self._environments, say) / "bin" / "python"
        told = (str(entry), str(folder), str(directory / FAILURE_FILE), work.parameter_format)
        # -I: nothing of the environment or the working directory decides what is imported. -B: nothing is written
        # beside the pack's files.
        by = None
        if self._servers is not None and needs.options.fork_server:
            by = Warm(servers=self._servers, python=python, preload=needs.options.preload)
            await by.prepare(walls)
        return Command(words=[str(python), "-I", "-B", str(self._host), *told], by=by)

    def _needs(self, folder: Path, making: PythonEnvironments) -> _Needs:
        key = (folder, making.interpreter.path)
        if key not in self._known:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            lock = python_lock(folder)
            recipe = making.recipe(lock) if lock is not None else None
            self._known[key] = _Needs(recipe=recipe, options=read_python_options(folder))
        return self._known[key]
