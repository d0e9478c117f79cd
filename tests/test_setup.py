"""Building the environment: what a newcomer is told when the machine lacks something."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy2(ROOT / "attune", tmp_path / "attune")
    (tmp_path / "bin").mkdir()
    return tmp_path


def interpreter(clone: Path, name: str, answer: str) -> None:
    """An interpreter as a machine may have it: one that answers what it is, and can do nothing else."""
    program = clone / "bin" / name
    program.write_text(f"#!/bin/sh\nprintf '{answer}\\n%s\\n' \"$0\"\n")
    program.chmod(0o755)


def setup(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(clone / "tools" / "setup.py"), *arguments],
        env={"PATH": str(clone / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_interpreter_without_ensurepip_names_the_missing_package(clone: Path) -> None:
    interpreter(clone, "python3", "3 11 0")
    done = setup(clone)
    assert done.returncode == 1
    assert "ensurepip" in done.stderr
    assert "apt-get install python3-venv" in done.stderr
    assert not (clone / ".venv").exists()


def test_an_interpreter_that_is_too_old_is_not_used(clone: Path) -> None:
    interpreter(clone, "python3", "3 9 1")
    done = setup(clone)
    assert done.returncode == 1
    assert "no Python 3.11 to 3.14 found" in done.stderr


def test_an_unknown_kind_is_refused(clone: Path) -> None:
    done = setup(clone, "everything")
    assert done.returncode == 1
    assert "usage" in done.stderr


def test_the_command_line_without_an_environment_says_what_to_do(clone: Path) -> None:
    done = subprocess.run(
        [str(clone / "attune"), "status"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert 'run "make up" there first' in done.stderr
