"""The tour of the README works: its lines are run as they stand, on a fresh home, and exit as it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.documents import ROOT, shell_blocks, shell_lines, split_exit_code
from tests.witness.platform import free_port

TOUR = "A tour in five minutes"
# A heartbeat of a second: a lost worker's lease runs out in four seconds instead of forty.
QUICK = {"ATTUNE__WORKER__HEARTBEAT_INTERVAL": "1", "ATTUNE__WORKER__SHUTDOWN_TIMEOUT": "5"}
TOUR_SECONDS_MAX = 240
DOWN_SECONDS_MAX = 120

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(TOUR_SECONDS_MAX + DOWN_SECONDS_MAX + 30)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the tour, and how it went."""

    line: str
    expected: int
    code: int | None
    printed: str


def read_tour() -> list[tuple[str, int]]:
    """The lines of the tour with the exit codes that the page announces."""
    text = (ROOT / "README.md").read_text()
    (chapter,) = re.findall(rf"^## {TOUR}\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    return [split_exit_code(line) for block in shell_blocks(chapter) for line in shell_lines(block)]


@pytest.fixture
def home() -> Iterator[Path]:
    # Not pytest's own directory: the account that PostgreSQL runs as under root could not enter it.
    place = Path(tempfile.mkdtemp(prefix="attune-tour-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        subprocess.run([ROOT / "attune", "down"], env=environment(place, 1), check=False, timeout=DOWN_SECONDS_MAX)
        shutil.rmtree(place, ignore_errors=True)


def environment(home: Path, port: int) -> dict[str, str]:
    """What a person's shell has, and what keeps this tour apart from every other platform of the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE")}
    return {**kept, **QUICK, "ATTUNE_HOME": str(home), "ATTUNE__API__PORT": str(port)}


def walk(tour: list[tuple[str, int]], home: Path, notes: Path) -> list[Step]:
    """Type every line into one shell, which stops after the first line that does not exit as announced."""
    script = []
    for number, (line, expected) in enumerate(tour):
        script.append(f"{{ {line}\n}} >{notes}/{number}.out 2>&1 </dev/null")
        script.append(f"code=$?; echo $code >{notes}/{number}.code; [ $code = {expected} ] || exit 0")
    subprocess.run(
        ["/bin/sh", "-c", "\n".join(script)],
        cwd=ROOT,
        env=environment(home, free_port()),
        check=True,
        timeout=TOUR_SECONDS_MAX,
    )
    return [
        Step(
            line=line,
            expected=expected,
            code=_read_code(notes / f"{number}.code"),
            printed=_read(notes / f"{number}.out"),
        )
        for number, (line, expected) in enumerate(tour)
    ]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _read_code(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() else None


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


def test_the_tour_has_all_its_stations() -> None:
    lines = " ; ".join(line for line, _ in read_tour())
    for station in ("make up", "core.echo", "core.shell", "execution logs", "pack install", "kill -9", "check", "down"):
        assert station in lines


def test_the_tour_of_the_readme_works(home: Path, tmp_path: Path) -> None:
    steps = walk(read_tour(), home, tmp_path)

    for step in steps:
        assert step.code == step.expected, f"{step.line}\n{step.printed}"
    printed = {step.line: step.printed for step in steps}
    assert '{"message":"hi"}' in printed["./attune run core.echo message=hi --wait"]
    assert {"out", "err"} <= set(printed["./attune execution logs 2"].splitlines())
    assert "Hello, Ada!" in printed["./attune run hello.greet name=Ada --wait"]
    assert "/name" in printed["./attune run hello.greet name=R2D2 --wait"]
    after_the_kill = printed["./attune execution show $execution"]
    assert re.search(r"^status: +succeeded$", after_the_kill, re.MULTILINE)
    assert re.search(r"^attempt: +2$", after_the_kill, re.MULTILINE)
    assert re.search(r"^worker-1 +worker +\d+ +running +1$", printed["./attune status"], re.MULTILINE)
    assert not processes_of(home)
