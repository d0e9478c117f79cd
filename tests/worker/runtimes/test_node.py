"""Which Node runs actions: the one that is named, with the npm beside it, or the one on the search path."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from attune.domain.retry import Ending
from attune.worker.runtimes.ask import NotOffered, ask_as_worker
from attune.worker.runtimes.node import find_node
from tests.plugins.report import ONLY_ROOT, not_run
from tests.witness.machine import Machine, a_machine
from tests.witness.node import any_node
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt

# Installs nothing but a package that tells which Node ran it.
NPM = """#!/usr/bin/env node
const files = require("fs");
files.mkdirSync("node_modules/ran", { recursive: true });
files.writeFileSync("node_modules/ran/index.js", `module.exports = ${JSON.stringify(process.env.RAN_BY)}`);
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every account can enter."""
    made = Path(tempfile.mkdtemp(prefix="attune-node-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


async def write_node(folder: Path) -> Path:
    """A Node that can be told from all others by what it leaves in the environment."""
    real = await any_node()
    return write_program(folder / "node", f"#!/bin/sh\nRAN_BY=the-named-one exec '{real}' \"$@\"\n")


def write_pack(machine: Machine) -> None:
    machine.write("package.json", "{}", digest=NO_DIGEST)
    machine.write("package-lock.json", '{"lockfileVersion": 3, "packages": {"node_modules/ran": {}}}', digest=NO_DIGEST)
    script = 'console.log(JSON.stringify([process.env.RAN_BY, require("ran")]));\n'
    machine.write("actions/ask.js", script, digest=NO_DIGEST)


async def run(machine: Machine) -> Ending:
    work = make_attempt(None, runner="node", entry_point="ask.js", output_format="json")
    return await machine.runners["node"].run(work, Printed())


async def test_the_node_that_is_named_runs_actions_and_the_npm_beside_it(folder: Path) -> None:
    node = await write_node(folder)
    write_program(folder / "npm", NPM)
    async with a_machine(node=node) as machine:
        write_pack(machine)
        assert (await run(machine)).result == ["the-named-one", "the-named-one"]
        assert f"({node})" in machine.details["node"]


async def test_the_npm_of_another_node_is_no_substitute(folder: Path) -> None:
    async with a_machine(node=await write_node(folder)) as machine:
        write_pack(machine)
        ending = await run(machine)
        assert ending.failure is not None
        assert ending.failure.code == "environment_failed"
        assert "without npm" in machine.details["node"]


async def test_one_that_is_named_has_no_substitute() -> None:
    async with a_machine(node=Path("/no/such/node")) as machine:
        assert "node" not in machine.runners
        assert machine.details["node"].startswith("not offered: /no/such/node does not run")
        assert "cannot enter" not in machine.details["node"]


async def test_one_below_a_closed_directory_is_reported_with_the_directory(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    node = write_program(closed / "node", "#!/bin/sh\necho v24.0.0\n")
    async with a_machine(node=node) as machine:
        confinement = machine.equipment.scripts.confinement
        if confinement.walls[confinement.usual].account is None:
            not_run(f"{ONLY_ROOT} runs actions under another account", cure="run the tests as root")
        assert machine.details["node"].endswith(f"they cannot enter {closed}")


async def test_one_that_is_too_old_is_refused(folder: Path) -> None:
    old = write_program(folder / "node", "#!/bin/sh\necho v16.20.2\n")
    with pytest.raises(NotOffered, match=r"is v16\.20\.2, older than 18"):
        await find_node(old, as_actions=ask_as_worker)
