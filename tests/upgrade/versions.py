"""Two versions on one machine: which one came before, its files and its environment, and its commands."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/attune/storage/migrations"
COMMAND_SECONDS = 180.0
STOP_SECONDS = 60.0
GIT = shutil.which("git") or "git"


class NotInHistory(Exception):
    """The clone has no older version to begin with; its message says why."""


def choose_revision(asked: str, *, clone: Path = ROOT) -> str:
    """The one asked for, else the newest release, else the one before the newest migration came."""
    if asked:
        return _git(clone, "rev-parse", "--verify", f"{asked}^{{commit}}")
    # A release that this version is itself would be no upgrade.
    here = _git(clone, "rev-parse", "HEAD")
    for tag in _git(clone, "tag", "--list", "v*", "--sort=-version:refname", "--merged", "HEAD").split():
        if (release := _git(clone, "rev-parse", f"{tag}^{{commit}}")) != here:
            return release
    newest = _git(clone, "log", "-1", "--format=%H", "--diff-filter=A", "--", MIGRATIONS)
    try:
        return _git(clone, "rev-parse", "--verify", f"{newest}^")
    except NotInHistory as error:
        message = f"this clone does not go back behind its newest migration; git fetch --unshallow: {error}"
        raise NotInHistory(message) from error


def _git(clone: Path, *words: str) -> str:
    done = subprocess.run([GIT, "-C", str(clone), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInHistory(done.stderr.strip() or f"git {' '.join(words)} failed")
    return done.stdout.strip()


@contextmanager
def unpacked(revision: str) -> Iterator[Path]:
    """The files of a revision with an environment of their own; gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="attune-old-"))
    # The account of actions must be able to come in.
    place.chmod(0o755)
    try:
        with tempfile.TemporaryFile() as packed:
            subprocess.run([GIT, "-C", str(ROOT), "archive", revision], stdout=packed, check=True)
            packed.seek(0)
            with tarfile.open(fileobj=packed) as archive:
                archive.extractall(place, filter="data")
        subprocess.run([sys.executable, "tools/setup.py", "runtime"], cwd=place, check=True, env=_clean(os.environ))
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what would make one version find the packages of the other."""
    return {name: value for name, value in environment.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}


@dataclass(kw_only=True)
class Version:
    """One version, in one home."""

    clone: Path
    home: Path
    settings: Mapping[str, str] = field(repr=False)
    serving: dict[str, Process] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "ATTUNE_HOME": str(self.home),
            "LANG": "C.UTF-8",
            **self.settings,
        }

    def _command(self, words: Sequence[str]) -> list[str]:
        return [str(self.clone / ".venv/bin/python"), "-m", "attune.cli.main", *words]

    async def run(self, *words: str, check: bool = True) -> str:
        """What a command says."""
        process = await asyncio.create_subprocess_exec(
            *self._command(words), env=self.environment, cwd=self.clone, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
        )
        async with asyncio.timeout(COMMAND_SECONDS):
            said, _ = await process.communicate()
        assert not check or process.returncode == 0, f"attune {' '.join(words)} → {process.returncode}\n{said.decode()}"
        return said.decode()

    async def serve(self, service: str, name: str) -> None:
        """One service beside the others, as a supervisor would start it."""
        (self.home / "logs").mkdir(exist_ok=True)
        with (self.home / "logs" / f"{name}.log").open("ab") as log:
            self.serving[name] = await asyncio.create_subprocess_exec(
                *self._command(["serve", service, "--name", name]),
                env=self.environment,
                cwd=self.clone,
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
            )

    async def stop(self) -> None:
        """End what was served, the good way."""
        for process in self.serving.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self.serving.values():
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
