"""Node actions: the script as it is, with the packages of the pack's lock in reach."""

from pathlib import Path
from typing import Final

from attune.packs.locks import node_lock
from attune.packs.store import content_folder
from attune.runtime.clock import new_uuid
from attune.worker.environments.node import NodeEnvironments
from attune.worker.environments.store import Environments, Recipe, Say
from attune.worker.runners.contract import Unrunnable
from attune.worker.runners.protocol import Attempt
from attune.worker.runners.script import Command, entry_file, environment_for
from attune.worker.runtimes.node import Node

# Below an environment: the packs that use it, as links.
PACKS: Final = "packs"
# Packs whose recipe is remembered, with the files it is made from. Beyond this all are read again.
REMEMBERED_MAX: Final = 100


class NodeLanguage:
    """The script as it is, or through a link beside its packages.

    Node finds packages by walking up from where the script lies, and a pack's own folder never changes.
    """

    def __init__(self, packs: Path, node: Node, environments: Environments, making: NodeEnvironments | None) -> None:
        self._packs = packs
        self.node = node
        self._environments = environments
        self._making = making
        self._known: dict[Path, Recipe | None] = {}

    async def prepare(self, attempt: Attempt, directory: Path, say: Say) -> Command:  # noqa: ARG002  it needs no files there
        work = attempt.work
        folder = content_folder(self._packs, work.pack_ref, work.pack_digest)
        entry = entry_file(folder, work)
        recipe = self._recipe(folder)
        if recipe is None:
            return Command(words=[str(self.node.path), str(entry)])
        place = await environment_for(attempt, recipe, self._environments, say)
        linked = _link(place / PACKS / work.pack_digest, folder) / entry.relative_to(folder)
        return Command(words=[str(self.node.path), "--preserve-symlinks", "--preserve-symlinks-main", str(linked)])

    def _recipe(self, folder: Path) -> Recipe | None:
        if folder not in self._known:
            files = node_lock(folder)
            if files is not None and self._making is None:
                raise Unrunnable("environment_failed", "the pack needs packages, and this worker has no npm")
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[folder] = self._making.recipe(files) if files and self._making else None
        return self._known[folder]


def _link(link: Path, folder: Path) -> Path:
    link.parent.mkdir(mode=0o755, exist_ok=True)
    try:
        link.symlink_to(folder)
    except FileExistsError:
        if link.readlink() != folder:  # The whole home was moved.
            aside = link.with_name(f".{new_uuid().hex}")
            aside.symlink_to(folder)
            aside.replace(link)
    return link
