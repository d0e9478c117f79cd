"""Workers for hostile actions: one for each account and level that this machine offers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from attune.worker.processes import Marking, end_all, find_marked
from tests.plugins.report import ONLY_ROOT, not_run
from tests.witness.scale import scaled

ROOT = Path(__file__).resolve().parents[2]
SITE_PACKAGES = Path(msgspec.__file__).parents[1]
ORDINARY = 65534
READY_SECONDS_MAX = 60.0
CANARY_VARIABLE = "ATTUNE_TEST_CANARY"

Said = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ground:
    """An account for the worker, and the level its actions get."""

    root: bool
    level: str

    @property
    def separate(self) -> bool:
        """Whether actions can neither signal the worker nor look into it."""
        return self.level != "none"


# The last shares its account with the first and its walls with the third.
GROUNDS = [
    Ground(root=True, level="user"),
    Ground(root=False, level="none"),
    Ground(root=False, level="namespace"),
    Ground(root=True, level="namespace"),
][: scaled(short=3, full=4)]


@pytest.fixture(params=GROUNDS, ids=lambda each: f"{'root' if each.root else 'ordinary'}-{each.level}")
def ground(request: pytest.FixtureRequest) -> Ground:
    wanted: Ground = request.param
    if wanted.root and os.geteuid() != 0:
        not_run(f"{ONLY_ROOT} can give actions another account", cure="run as root")
    return wanted


@pytest.fixture
def home(ground: Ground) -> Iterator[Path]:
    """A directory that every account can enter, unlike those of the tests."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="attune-hostile-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        if not ground.root and os.geteuid() == 0:
            os.chown(folder, ORDINARY, ORDINARY)
        yield folder


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A running stand."""

    process: asyncio.subprocess.Process
    ready: Said

    async def ended(self) -> list[Said]:
        """What it said of each command, in the order in which they ended."""
        assert self.process.stdout is not None
        lines = (await self.process.stdout.read()).splitlines()
        assert await self.process.wait() == 0
        # The others are the worker's log.
        return [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]


StartStand = Callable[..., Awaitable[Standing]]


@pytest.fixture
async def start_stand(ground: Ground, home: Path) -> AsyncIterator[StartStand]:
    started: list[asyncio.subprocess.Process] = []

    async def start(*commands: str, canary: str = "", **told: object) -> Standing:
        asked = msgspec.json.encode({"home": str(home), "level": ground.level, "commands": commands} | told).decode()
        process = await asyncio.create_subprocess_exec(
            *(_interpreter(ground), "-B", str(Path(__file__).with_name("stand.py")), asked),
            env={
                "PYTHONPATH": f"{ROOT}/src:{ROOT}:{SITE_PACKAGES}",
                "PATH": os.environ["PATH"],
                CANARY_VARIABLE: canary,
            },
            stdout=asyncio.subprocess.PIPE,
            limit=2**20,
            cwd="/",
            **_account(ground),
        )
        started.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(READY_SECONDS_MAX):
            while not (line := await process.stdout.readline()).startswith(b"{"):
                assert line, "the stand did not start"
        return Standing(process=process, ready=msgspec.json.decode(line))

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.wait()
    prefix = Marking(home=home, worker="stand", instance=uuid4()).worker_prefix
    await end_all(lambda: find_marked(prefix))


def _account(ground: Ground) -> dict[str, Any]:
    if ground.root or os.geteuid() != 0:
        return {}
    return {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}


def _interpreter(ground: Ground) -> str:
    """Ours, or where the ordinary account cannot enter its directory: one of the same version that it can."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for each in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if _works(each, ground):
            return each
    return not_run(f"an ordinary account can use no {version} with what the tests need", cure=f"install {version}")


def _works(interpreter: str, ground: Ground) -> bool:
    try:
        done = subprocess.run(
            [interpreter, "-B", "-c", "import msgspec, structlog, sys; assert sys.prefix"],
            check=False,
            capture_output=True,
            cwd="/",
            env={"PYTHONPATH": f"{ROOT}/src:{SITE_PACKAGES}"},
            **_account(ground),
        )
    except OSError:
        return False
    return done.returncode == 0
