"""The peers' packages: an environment for each, made once from its lock, in the cache directory and never in ours."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import uv

from attune.worker.environments.sources import uv_environment
from tools.unpack import cache_directory, only_one_at_a_time

REQUIREMENTS = Path(__file__).parent / "requirements"
SECONDS_MAX = 600


class NotInstalled(Exception):
    """A peer's packages cannot be had; says why."""


def programs_of(name: str) -> Path:
    """The folder with the programs of a peer's environment, which is made now if it is not there."""
    lock = REQUIREMENTS / f"{name}.txt"
    digest = hashlib.sha256(lock.read_bytes() + sys.executable.encode()).hexdigest()[:12]
    folder = cache_directory() / "peers" / f"{name}-{digest}"
    folder.parent.mkdir(exist_ok=True)
    with only_one_at_a_time(folder):
        if not (folder / "complete").exists():
            _make(folder, lock)
    return folder / "bin"


def version_of(name: str) -> str:
    """As the lock says."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith(f"{name}=="))
    return line.removeprefix(f"{name}==").split()[0]


def _make(folder: Path, lock: Path) -> None:
    """In its place, because programs hold their own path; complete when the mark is there."""
    shutil.rmtree(folder, ignore_errors=True)
    _uv("venv", "--python", sys.executable, str(folder))
    _uv("pip", "install", "--require-hashes", "--python", str(folder / "bin" / "python"), "-r", str(lock))
    (folder / "complete").touch()


def _uv(*words: str) -> None:
    told = uv_environment(os.environ, cache=cache_directory() / "uv")
    command = [uv.find_uv_bin(), *words, "-q"]
    try:
        done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"uv {words[0]}: no end within {SECONDS_MAX} s") from error
    if done.returncode != 0:
        raise NotInstalled(f"uv {words[0]}: {done.stderr.strip()[-500:]}")
