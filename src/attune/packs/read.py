"""A folder becomes a pack definition, or the list of everything that keeps it from being one."""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from attune.domain.definition_documents import (
    action_from_mapping,
    find_action_errors,
    find_pack_errors,
    find_policy_errors,
    pack_from_mapping,
    policy_from_mapping,
)
from attune.domain.definitions import (
    ActionDefinition,
    PackDefinition,
    PolicyDefinition,
    PythonOptions,
    Runner,
    ScopeKind,
)
from attune.domain.errors import FieldError
from attune.domain.json_schema import UnknownKey
from attune.domain.parameters import find_parameter_schema_errors
from attune.domain.refs import did_you_mean, pack_of
from attune.packs.files import digest_files, list_files
from attune.packs.locks import find_lock_problems
from attune.packs.problems import BadPack, Problem
from attune.packs.yaml_document import Document, read_document

PACK_FILE = "pack.yaml"
CONFIG_FILE = "config.schema.yaml"
ACTIONS_FOLDER = "actions"
POLICIES_FOLDER = "policies"
# Folders that have a meaning, but are not read by this version.
UNREAD_FOLDERS = ("permission_sets", "rules", "sensors", "triggers")
_KNOWN_FOLDERS = (ACTIONS_FOLDER, POLICIES_FOLDER, *UNREAD_FOLDERS)
# Runners whose entry point is a file of the pack.
_SCRIPT_RUNNERS = frozenset({Runner.SHELL, Runner.PYTHON, Runner.NODE, Runner.CONTAINER, Runner.WORKFLOW})

Definition = TypeVar("Definition", ActionDefinition, PackDefinition, PolicyDefinition)
_Find = Callable[[object], list[FieldError]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackReading:
    """What a folder holds: the definition, the digest of its content, and what was left unread."""

    definition: PackDefinition
    digest: str
    warnings: tuple[str, ...] = ()


def read_pack(folder: Path) -> PackReading:
    """Read a pack's folder; raises `BadPack` with every problem, not only the first."""
    files = list_files(folder)
    reader = _Reader(folder, [file.path for file in files])
    definition = reader.read()
    if reader.problems or definition is None:
        raise BadPack(reader.problems)
    return PackReading(definition=definition, digest=digest_files(folder, files), warnings=tuple(reader.find_unread()))


def read_python_options(folder: Path) -> PythonOptions:
    """How the actions of an installed pack are started."""
    path = folder / PACK_FILE
    if not path.is_file():
        return PythonOptions()  # Its actions were created one by one.
    return pack_from_mapping(read_document(path.read_bytes(), file=PACK_FILE).value).python


def entry_point_path(entry_point: str) -> str:
    """Where an action's script lies below the pack's folder; what climbs out of it begins with `..`."""
    return posixpath.normpath(posixpath.join(ACTIONS_FOLDER, entry_point))


class _Reader:
    """Reads file after file and keeps every problem."""

    def __init__(self, folder: Path, paths: Sequence[str]) -> None:
        self.folder = folder
        self.paths = paths
        self.problems: list[Problem] = []
        # Everything that names itself, sound or not: an action with a mistake elsewhere is not an unknown action.
        self.declared: list[tuple[Document, str]] = []

    def read(self) -> PackDefinition | None:
        pack = self._pack()
        self.declared.clear()
        actions = self._definitions(ACTIONS_FOLDER, find_action_errors, action_from_mapping)
        for document, action in actions:
            self.problems.extend(_check_entry_point(document, action, self.paths))
        refs = [ref for _, ref in self.declared]
        # A file that cannot be read may hold the action a policy names.
        all_named = len(refs) == len(self._paths_in(ACTIONS_FOLDER))
        policies = self._definitions(POLICIES_FOLDER, find_policy_errors, policy_from_mapping)
        for document, policy in policies if all_named else ():
            self.problems.extend(_check_scope(document, policy, refs))
        self.problems.extend(_find_repeated(self.declared))
        self.problems.extend(find_lock_problems(self.folder, self.paths))
        if pack is None:
            return None
        self.problems.extend(_find_foreign(self.declared, pack.ref))
        return replace(
            pack,
            actions=tuple(sorted((action for _, action in actions), key=lambda action: action.ref)),
            policies=tuple(sorted((policy for _, policy in policies), key=lambda policy: policy.ref)),
        )

    def find_unread(self) -> Iterator[str]:
        """Sentences about files that an author may believe to be read."""
        for name in sorted({path.partition("/")[0] for path in self.paths if "/" in path}):
            if name in UNREAD_FOLDERS:
                yield f"{name}/ is not read by this version; nothing in it was installed"
            elif name not in _KNOWN_FOLDERS and (hint := did_you_mean(name, _KNOWN_FOLDERS)):
                yield f"{name}/ is not read{hint}"
        for path in self.paths:
            folder, _, name = path.rpartition("/")
            if name.endswith(".yml") and folder in ("", ACTIONS_FOLDER, POLICIES_FOLDER):
                yield f"{path} is not read: definitions end in .yaml"

    def _pack(self) -> PackDefinition | None:
        if PACK_FILE not in self.paths:
            self.problems.append(Problem(file=PACK_FILE, message="is missing: it names the pack (ref) and its version"))
            return None
        found = self._definition(PACK_FILE, find_pack_errors, pack_from_mapping)
        if found is None or CONFIG_FILE not in self.paths:
            return found and found[1]
        document, pack = found
        if pack.config_schema is not None:
            message = f"the schema also stands in {CONFIG_FILE}; keep one of them"
            self.problems.append(document.problem("/config_schema", message))
        config = self._document(CONFIG_FILE, find_parameter_schema_errors)
        schema = config.value if config else None
        return replace(pack, config_schema=schema) if isinstance(schema, dict) else pack

    def _definitions(
        self, folder: str, find: _Find, build: Callable[[object], Definition]
    ) -> list[tuple[Document, Definition]]:
        return [found for path in self._paths_in(folder) if (found := self._definition(path, find, build))]

    def _paths_in(self, folder: str) -> list[str]:
        return [path for path in self.paths if path.endswith(".yaml") and posixpath.dirname(path) == folder]

    def _definition(
        self, path: str, find: _Find, build: Callable[[object], Definition]
    ) -> tuple[Document, Definition] | None:
        document = self._document(path, find)
        return (document, build(document.value)) if document else None

    def _document(self, path: str, find: _Find) -> Document | None:
        """Read one file; None, with its problems noted, if it is not sound."""
        try:
            document = read_document((self.folder / path).read_bytes(), file=path)
        except BadPack as unreadable:
            self.problems.extend(unreadable.problems)
            return None
        if isinstance(document.value, dict) and isinstance(ref := document.value.get("ref"), str):
            self.declared.append((document, ref))
        errors = find(document.value)
        for error in errors:
            self.problems.append(document.problem(error.pointer, error.message, of_key=isinstance(error, UnknownKey)))
        return None if errors else document


def _check_entry_point(document: Document, action: ActionDefinition, paths: Sequence[str]) -> Iterator[Problem]:
    if action.entry_point is None or action.runner not in _SCRIPT_RUNNERS:
        return
    path = entry_point_path(action.entry_point)
    if posixpath.isabs(action.entry_point) or path.split("/")[0] == "..":
        message = f"{action.entry_point!r} leads out of the pack; name a file beside this one"
        yield document.problem("/entry_point", message)
    elif path not in paths:
        # Links never get here: the list of files refuses them.
        yield document.problem("/entry_point", f"there is no file {path!r}{did_you_mean(path, paths)}")


def _check_scope(document: Document, policy: PolicyDefinition, actions: Sequence[str]) -> Iterator[Problem]:
    scope, pack = policy.scope, pack_of(policy.ref)
    if (
        scope.kind is ScopeKind.ACTION
        and scope.ref is not None
        and pack_of(scope.ref) == pack
        and scope.ref not in actions
    ):
        yield document.problem(
            "/scope/action", f"the pack has no action {scope.ref!r}{did_you_mean(scope.ref, actions)}"
        )


def _find_repeated(declared: Sequence[tuple[Document, str]]) -> Iterator[Problem]:
    first: dict[tuple[str, str], str] = {}
    for document, ref in declared:
        # An action and a policy may share a name; two actions may not.
        key = (posixpath.dirname(document.file), ref)
        if key in first:
            yield document.problem("/ref", f"{ref!r} is already declared in {first[key]}")
        first.setdefault(key, document.file)


def _find_foreign(declared: Sequence[tuple[Document, str]], pack: str) -> Iterator[Problem]:
    for document, ref in declared:
        if pack_of(ref) != pack:
            yield document.problem("/ref", f"{ref!r} is not in pack {pack!r}; write {pack}.{ref.rpartition('.')[2]}")
