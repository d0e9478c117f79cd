"""Environments of packs: built once, from hashes, seen whole or not at all, and gone when nobody needs them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attune.domain.retry import Ending, Outcome
from attune.worker.environments.build import BuildFailed
from attune.worker.environments.store import MARKER, Environments, Recipe, StoppedEarly
from attune.worker.runners.protocol import Stop, StopReason, Stream
from tests.plugins.report import not_run
from tests.witness.machine import Machine, a_machine, a_machine_in
from tests.witness.node import CURE, brought_node
from tests.witness.waiting import until
from tests.witness.wheels import make_tarball, make_wheel, offline
from tests.worker.attempts import Printed, make_attempt

OLD, NEW = "1" * 64, "2" * 64
ASKS = "import shared\n\ndef run():\n    return shared.VERSION\n"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
async def machine(wheels: Path) -> AsyncIterator[Machine]:
    async with a_machine(offline(wheels)) as made:
        yield made


def write_pack(machine: Machine, digest: str, lock: str) -> None:
    machine.write("requirements.lock", lock, digest=digest)
    machine.write("actions/ask.py", ASKS, digest=digest)


async def run(machine: Machine, digest: str, printed: Printed | None = None, stop: Stop | None = None) -> Ending:
    work = {"runner": "python", "entry_point": "ask.py", "pack_digest": digest}
    return await machine.runners["python"].run(make_attempt(stop, **work), printed or Printed())


def built(machine: Machine, kind: str = "python") -> list[Path]:
    return [path.parent for path in (machine.plan.environments / kind).glob(f"*/{MARKER}")]


async def test_packs_with_conflicting_versions_run_at_once_and_each_sees_its_own(
    machine: Machine, wheels: Path
) -> None:
    for digest, version in ((OLD, "1.0"), (NEW, "2.0")):
        lock = make_wheel(wheels, "shared", version, {"shared.py": f"VERSION = '{version}'\n"})
        write_pack(machine, digest, lock)
    endings = await asyncio.gather(*(run(machine, digest) for digest in (OLD, NEW) * 3))
    assert [ending.result for ending in endings] == ["1.0", "2.0"] * 3
    assert len(built(machine)) == 2


async def test_the_log_tells_of_the_building_once(machine: Machine, wheels: Path) -> None:
    write_pack(machine, OLD, make_wheel(wheels, "shared", "1.0", {"shared.py": "VERSION = 1\n"}))
    first, second = Printed(), Printed()
    await run(machine, OLD, first)
    await run(machine, OLD, second)
    assert b"building environment: Python" in first.content[Stream.STDERR]
    assert b"environment ready" in first.content[Stream.STDERR]
    assert second.content[Stream.STDERR] == b""


async def test_two_workers_of_one_machine_share_an_environment(machine: Machine, wheels: Path) -> None:
    write_pack(machine, OLD, make_wheel(wheels, "shared", "1.0", {"shared.py": "VERSION = 1\n"}))
    async with a_machine_in(machine.plan.home, offline(wheels)) as other:
        endings = await asyncio.gather(run(machine, OLD), run(other, OLD))
        assert [ending.result for ending in endings] == [1, 1]
    (environment,) = built(machine)
    module = next(environment.glob("lib/*/site-packages/shared.py"))
    assert module.stat().st_nlink > 1, "it is no hard link into the cache"


async def test_a_package_that_is_not_what_the_lock_names_fails_with_the_reason(machine: Machine, wheels: Path) -> None:
    lock = make_wheel(wheels, "shared", "1.0", {"shared.py": "VERSION = 1\n"})
    write_pack(machine, OLD, lock[:-65] + "0" * 64 + "\n")
    ending = await run(machine, OLD)
    assert ending.outcome is Outcome.FAILED
    assert ending.failure is not None
    assert ending.failure.code == "environment_failed"
    assert "hash" in ending.failure.message.lower()
    assert built(machine) == []


async def test_credentials_of_an_index_are_not_printed(tmp_path: Path) -> None:
    variables = {"PIP_INDEX_URL": "http://user:hunter2@127.0.0.1:9/simple", "UV_HTTP_RETRIES": "0"}
    async with a_machine(variables) as machine:
        write_pack(machine, OLD, f"shared==1.0 --hash=sha256:{'0' * 64}\n")
        printed = Printed()
        ending = await run(machine, OLD, printed)
    assert ending.failure is not None
    assert "127.0.0.1:9" in ending.failure.message
    assert "hunter2" not in ending.failure.message + printed.content[Stream.STDERR].decode()


async def test_who_is_stopped_while_it_is_built_ends_at_once_and_the_building_goes_on(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def build(place: Path) -> None:
        place.mkdir()
        await go_on.wait()

    environments = Environments(tmp_path, build_seconds_max=30, unused_days_max=14)
    recipe = Recipe(kind="python", key="key", label="slow", build=build)
    stop, said = Stop(), asyncio.Event()

    async def say(_text: str) -> None:
        said.set()

    waiting = asyncio.create_task(environments.ensure(recipe, stop=stop, say=say))
    await said.wait()
    stop.request(StopReason.CANCELLED)
    with pytest.raises(StoppedEarly):
        await waiting
    go_on.set()
    place = await environments.ensure(recipe, stop=Stop(), say=say)
    assert (place / MARKER).exists()


async def test_a_build_that_takes_too_long_fails(tmp_path: Path) -> None:
    async def build(place: Path) -> None:
        place.mkdir()
        await asyncio.Event().wait()

    environments = Environments(tmp_path, build_seconds_max=0.05, unused_days_max=14)
    with pytest.raises(BuildFailed, match="not ready within"):
        await environments.ensure(Recipe(kind="python", key="key", label="", build=build), stop=Stop(), say=hush)
    assert list((tmp_path / "python").iterdir()) == []


async def hush(_text: str) -> None:
    pass


BUILDER = """
import asyncio, sys
from pathlib import Path
from attune.worker.environments.store import Environments, Recipe
from attune.worker.runners.protocol import Stop

async def build(place):
    place.mkdir()
    (place / "half").write_text("half")
    print("building", flush=True)
    await asyncio.sleep(600)

async def say(text):
    pass

store = Environments(Path(sys.argv[1]), build_seconds_max=600, unused_days_max=14)
asyncio.run(store.ensure(Recipe(kind="python", key="key", label="", build=build), stop=Stop(), say=say))
"""


async def test_what_a_killed_builder_left_is_cleared_and_built_afresh(tmp_path: Path) -> None:
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BUILDER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert killed.stdout is not None
    assert await killed.stdout.readline() == b"building\n"

    began = asyncio.Event()

    async def build(place: Path) -> None:
        began.set()
        place.mkdir()
        (place / "whole").write_text("whole")

    environments = Environments(tmp_path, build_seconds_max=30, unused_days_max=14)
    recipe = Recipe(kind="python", key="key", label="", build=build)
    said = asyncio.Event()

    async def say(_text: str) -> None:
        said.set()

    waiting = asyncio.create_task(environments.ensure(recipe, stop=Stop(), say=say))
    await said.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(began.wait(), timeout=0.3)
    os.kill(killed.pid, signal.SIGKILL)
    await killed.wait()
    place = await waiting
    assert {path.name for path in place.iterdir()} == {"whole", MARKER}
    assert [path.name for path in (tmp_path / "python").iterdir()] == ["key"]


async def test_only_what_was_not_used_for_long_is_removed(tmp_path: Path) -> None:
    async def build(place: Path) -> None:
        place.mkdir()

    environments = Environments(tmp_path, build_seconds_max=30, unused_days_max=14)
    recipes = [Recipe(kind="python", key=key, label="", build=build) for key in ("used", "unused")]
    used, unused = [await environments.ensure(recipe, stop=Stop(), say=hush) for recipe in recipes]
    for place in (used, unused):
        os.utime(place / MARKER, (1, 1))
    await environments.ensure(recipes[0], stop=Stop(), say=hush)
    assert environments.remove_unused() == 1
    assert (used.exists(), unused.exists()) == (True, False)


async def test_a_node_action_finds_the_packages_of_its_lock(tmp_path: Path) -> None:
    async with a_machine({"HOME": str(tmp_path)}, node=await brought_node()) as machine:
        if "node" not in machine.runners:
            not_run(machine.details["node"], cure=CURE)
        for digest, version in ((OLD, "1.0.0"), (NEW, "2.0.0")):
            write_node_pack(machine, digest, version)
        endings = await asyncio.gather(*(run_node(machine, digest) for digest in (OLD, NEW)))
        assert [ending.result for ending in endings] == ["1.0.0", "2.0.0"]
        assert len(built(machine, "node")) == 2


def write_node_pack(machine: Machine, digest: str, version: str) -> None:
    tarball = machine.write("vendor/shared.tgz", b"", digest=digest)
    integrity = make_tarball(tarball, "shared", version, f"module.exports = '{version}';\n")
    machine.write("package.json", '{"dependencies": {"shared": "file:vendor/shared.tgz"}}', digest=digest)
    package = f'{{"version": "{version}", "resolved": "file:vendor/shared.tgz", "integrity": "{integrity}"}}'
    root = '{"dependencies": {"shared": "file:vendor/shared.tgz"}}'
    lock = f'{{"lockfileVersion": 3, "packages": {{"": {root}, "node_modules/shared": {package}}}}}'
    machine.write("package-lock.json", lock, digest=digest)
    # As a module, whose imports ignore NODE_PATH.
    script = "import shared from 'shared';\nconsole.log(JSON.stringify(shared));\n"
    machine.write("actions/ask.mjs", script, digest=digest)


async def run_node(machine: Machine, digest: str) -> Ending:
    work = {"runner": "node", "entry_point": "ask.mjs", "pack_digest": digest, "output_format": "json"}
    return await machine.runners["node"].run(make_attempt(None, **work), Printed())


async def test_a_worker_that_ends_leaves_no_builder_behind(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def build(place: Path) -> None:
        started.set()
        await asyncio.Event().wait()

    environments = Environments(tmp_path, build_seconds_max=30, unused_days_max=14)
    recipe = Recipe(kind="python", key="key", label="", build=build)
    waiting = asyncio.create_task(environments.ensure(recipe, stop=Stop(), say=hush))
    await started.wait()
    await environments.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async def gone() -> bool:
        return not environments._building

    await until(gone)
