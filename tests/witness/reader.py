"""A reader who types every line of a page into one shell, as it stands, and notes how each went."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.documents import ROOT, shell_lines, split_exit_code
from tests.witness.platform import free_port

# A heartbeat of a second: a lost worker's lease runs out in four seconds instead of forty.
QUICK = {"ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1", "ATTUNE__WORKER__SHUTDOWN_TIMEOUT": "5"}
PAGE_SECONDS_MAX = 240
DOWN_SECONDS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line, the exit code that the page announces, the one it had (-1: not reached), and all it printed."""

    line: str
    expected: int
    code: int
    printed: str


@contextmanager
def fresh_home() -> Iterator[Path]:
    """A home of its own; whatever runs in it is ended afterwards."""
    # Not pytest's own directory: the account that PostgreSQL runs as under root could not enter it.
    home = Path(tempfile.mkdtemp(prefix="attune-reader-"))
    home.chmod(0o755)
    try:
        yield home
    finally:
        subprocess.run([ROOT / "attune", "down"], env=environment(home, port=1), check=False, timeout=DOWN_SECONDS_MAX)
        shutil.rmtree(home, ignore_errors=True)


def environment(home: Path, *, port: int) -> dict[str, str]:
    """What a person's shell has, and what keeps the reader apart from every other platform of the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE")}
    return {**kept, **QUICK, "ATTUNE_HOME": str(home), "ATTUNE__API__PORT": str(port)}


def follow(blocks: Sequence[str], home: Path) -> list[Step]:
    """Type the lines of these blocks in the clone, until one does not exit as the page says."""
    lines = [split_exit_code(line) for block in blocks for line in shell_lines(block)]
    notes = home / "notes"
    notes.mkdir()
    script = []
    for number, (line, expected) in enumerate(lines):
        script.append(f"{{ {line}\n}} >{notes}/{number}.printed 2>&1 </dev/null")
        script.append(f"code=$?; echo $code >{notes}/{number}.code; [ $code = {expected} ] || exit 0")
    typed = "\n".join(script)
    surroundings = environment(home, port=free_port())
    subprocess.run(["/bin/sh", "-c", typed], cwd=ROOT, env=surroundings, check=True, timeout=PAGE_SECONDS_MAX)
    return [
        Step(
            line=line,
            expected=expected,
            code=int(_read(notes / f"{number}.code") or "-1"),
            printed=_read(notes / f"{number}.printed"),
        )
        for number, (line, expected) in enumerate(lines)
    ]


def expect_as_announced(steps: Sequence[Step]) -> dict[str, str]:
    """Fail at the first line that went otherwise; returns what each line printed, the last time it was typed."""
    for step in steps:
        assert step.code == step.expected, f"{step.line}\nexited with {step.code}\n{step.printed}"
    return {step.line: step.printed for step in steps}


def processes_of(home: Path) -> list[str]:
    """Whoever carries this home in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("ATTUNE_HOME") == str(home):
                found.append(f"{process.pid} {process.name()}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
