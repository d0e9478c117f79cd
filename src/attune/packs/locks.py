"""What a pack needs besides its own files, as locks that name every package with its hash.

A worker installs from a lock and from nothing else, so that what was tried is what runs, on every worker and next year.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.packs.problems import Problem

PYTHON_LOCK: Final = "requirements.lock"
PYTHON_WISHES: Final = "requirements.txt"
NODE_LOCK: Final = "package-lock.json"
NODE_WISHES: Final = "package.json"

MAKE_PYTHON_LOCK: Final = (
    f"make a lock with: uv pip compile --universal --generate-hashes {PYTHON_WISHES} -o {PYTHON_LOCK}"
)
MAKE_NODE_LOCK: Final = "make a lock with: npm install --package-lock-only"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PINNED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?\s*==\s*[^\s;,=]+\s*(;[^#]*)?")
_HASH: Final = re.compile(r"--hash=sha(256|384|512):[0-9a-f]+")
# A vendored file of the pack, or a registry; anything else could be another thing tomorrow.
_VENDORED: Final = re.compile(r"file:(?!/)(?!.*\.\.).+\.tgz")

Package = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One logical line of a requirements file; `line` is where it begins."""

    line: int
    text: str

    @property
    def name(self) -> str:
        """The package's name as all spellings of it agree on, or nothing if the line names none."""
        found = _NAME.match(self.text)
        return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def find_lock_problems(folder: Path, paths: Sequence[str]) -> Iterator[Problem]:
    """What keeps a worker from making this pack's environments."""
    if PYTHON_LOCK in paths or PYTHON_WISHES in paths:
        yield from _python_problems(folder, paths)
    if NODE_LOCK in paths or NODE_WISHES in paths:
        yield from _node_problems(folder, paths)


def python_lock(folder: Path) -> bytes | None:
    """What a pack's Python environment is made from; None if it needs no packages."""
    for name in (PYTHON_LOCK, PYTHON_WISHES):
        path = folder / name
        if path.is_file():
            content = path.read_bytes()
            return content if read_requirements(content) else None
    return None


def node_lock(folder: Path) -> dict[str, bytes] | None:
    """The files that a pack's node_modules are made from; None if it needs none."""
    path = folder / NODE_LOCK
    if not path.is_file():
        return None
    content = path.read_bytes()
    packages = _read_packages(content)
    if not any(packages):  # The entry without a name is the pack itself.
        return None
    sources = {_source_of(package) for package in packages.values()}
    names = [NODE_WISHES, *sorted(one.removeprefix("file:") for one in sources if _VENDORED.fullmatch(one))]
    return {NODE_LOCK: content, **{name: (folder / name).read_bytes() for name in names}}


def read_requirements(content: bytes) -> list[Requirement]:
    """The logical lines that are neither empty nor comments."""
    found, gathered, begin = [], "", 0
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        begin = begin if gathered else number
        gathered += re.sub(r"(^|\s)#.*$", "", line)
        if gathered.endswith("\\"):
            gathered = gathered[:-1] + " "
            continue
        if gathered.strip():
            found.append(Requirement(line=begin, text=gathered.strip()))
        gathered = ""
    return found


def _python_problems(folder: Path, paths: Sequence[str]) -> Iterator[Problem]:
    name = PYTHON_LOCK if PYTHON_LOCK in paths else PYTHON_WISHES
    locked = read_requirements((folder / name).read_bytes())
    for requirement in locked:
        message = _say_unlocked(requirement)
        if message:
            # The first is enough: they are mended together.
            yield Problem(file=name, line=requirement.line, column=1, message=message)
            return
    if name == PYTHON_LOCK and PYTHON_WISHES in paths:
        names = {requirement.name for requirement in locked}
        for wish in read_requirements((folder / PYTHON_WISHES).read_bytes()):
            if wish.name and wish.name not in names:
                message = f"{wish.name!r} is not in {PYTHON_LOCK}; {MAKE_PYTHON_LOCK}"
                yield Problem(file=PYTHON_WISHES, line=wish.line, column=1, message=message)


def _say_unlocked(requirement: Requirement) -> str:
    if requirement.text.startswith("-"):
        option = requirement.text.split()[0].partition("=")[0]
        return f"{option} has no place in a lock: where packages come from is the worker's business"
    entry, *_ = requirement.text.split("--hash=", 1)
    if not _PINNED.fullmatch(entry.strip()):
        return f"{entry.strip()!r} names no exact version of a package; {MAKE_PYTHON_LOCK}"
    return "" if _HASH.search(requirement.text) else f"{requirement.name!r} has no hash; {MAKE_PYTHON_LOCK}"


def _node_problems(folder: Path, paths: Sequence[str]) -> Iterator[Problem]:
    if NODE_LOCK not in paths:
        if json_object((folder / NODE_WISHES).read_bytes()).get("dependencies"):
            yield Problem(file=NODE_WISHES, message=f"has no {NODE_LOCK} beside it; {MAKE_NODE_LOCK}")
        return
    if NODE_WISHES not in paths:
        yield Problem(file=NODE_LOCK, message=f"has no {NODE_WISHES} beside it")
        return
    packages = _read_packages((folder / NODE_LOCK).read_bytes())
    if not packages:
        yield Problem(file=NODE_LOCK, message=f"is no lock of npm 7 or newer; {MAKE_NODE_LOCK}")
    for place, package in packages.items():
        message = _say_unfit(package, paths) if place else ""
        if message:
            yield Problem(file=NODE_LOCK, message=f"{place} {message}")


def _say_unfit(package: Package, paths: Sequence[str]) -> str:
    source = _source_of(package)
    if package.get("link") or not source.startswith(("https://", "http://", "file:")):
        # npm leaves the address of a registry's package out if it is asked to.
        if package.get("link") or source:
            return f"comes from {source or 'a folder'}; a lock names packages of a registry, or .tgz files of the pack"
    elif source.startswith("file:") and not (_VENDORED.fullmatch(source) and source.removeprefix("file:") in paths):
        return f"comes from {source}, which is no .tgz file of the pack"
    return "" if package.get("integrity") or package.get("inBundle") else f"has no hash; {MAKE_NODE_LOCK}"


def _source_of(package: Package) -> str:
    source = package.get("resolved")
    return source if isinstance(source, str) else ""


def _read_packages(content: bytes) -> dict[str, Package]:
    packages = json_object(content).get("packages")
    found = packages.items() if isinstance(packages, dict) else ()
    return {place: package for place, package in found if isinstance(package, dict)}


def json_object(content: bytes) -> dict[str, object]:
    """A JSON object, or an empty one if it is none."""
    try:
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
