"""Which Python runs actions: one that they see as the worker sees it, or none at all."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from attune.worker.runtimes.ask import Answer, Ask, NotOffered, ask_as_worker, ask_behind
from attune.worker.runtimes.python import SYSTEM_PYTHON, examine, find_python
from tests.plugins.report import ONLY_ROOT, not_run
from tests.witness.machine import Machine, a_machine

OWN = Path(sys._base_executable)  # type: ignore[attr-defined]  # the interpreter behind an environment


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every account can enter."""
    made = Path(tempfile.mkdtemp(prefix="attune-interpreters-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with a_machine() as made:
        yield made


def as_another_account(machine: Machine) -> Ask:
    scripts = machine.equipment.scripts
    walls = next((each for each in scripts.confinement.walls.values() if each.account is not None), None)
    if walls is None:
        not_run(f"{ONLY_ROOT} can ask under another account", cure="run the tests as root")
    return ask_behind(scripts.launcher, walls)


async def unable(_command: Sequence[str]) -> Answer:
    return Answer(code=None, said="Permission denied")


async def test_the_workers_own_is_taken_where_actions_can_reach_it() -> None:
    found = await find_python(None, as_worker=ask_as_worker, as_actions=ask_as_worker)
    assert (found.path, found.version, found.base_prefix) == (OWN, sys.version, sys.base_prefix)
    assert found.note == ""


async def test_where_actions_cannot_reach_it_the_systems_own_is_taken_and_that_is_said() -> None:
    async def not_own(command: Sequence[str]) -> Answer:
        return await (unable if str(OWN) in command else ask_as_worker)(command)

    found = await find_python(None, as_worker=ask_as_worker, as_actions=not_own)
    assert found.path == SYSTEM_PYTHON
    assert f"not the worker's own, because {OWN} does not run under the account of actions" in found.describe()


async def test_where_none_can_be_reached_none_is_offered() -> None:
    with pytest.raises(NotOffered, match="does not run under the account of actions"):
        await find_python(None, as_worker=ask_as_worker, as_actions=unable)


async def test_one_that_is_named_has_no_substitute() -> None:
    async with a_machine(python=Path("/no/such/python")) as machine:
        assert "python" not in machine.runners
        assert machine.details["python"].startswith("not offered: /no/such/python does not run")


async def test_an_interpreter_below_a_closed_directory_is_reported_with_the_directory(
    machine: Machine, folder: Path
) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to(SYSTEM_PYTHON)
    ask = as_another_account(machine)
    with pytest.raises(NotOffered, match=f"they cannot enter {closed}$"):
        await examine(closed / "python", as_worker=ask_as_worker, as_actions=ask)


async def test_an_interpreter_that_is_silently_another_one_is_refused(machine: Machine, folder: Path) -> None:
    facts = {"version": "3.13.0 (theirs)", "numbers": [3, 13, 0], "base_prefix": "/usr", "implementation": "cpython"}
    theirs, own = (json.dumps({**facts, "ssl": "1", "version": version}) for version in ("3.11.9", "3.13.0"))
    two_faced = folder / "python"
    two_faced.write_text(
        f"#!/bin/sh\nif [ \"$(id -u)\" = {os.geteuid()} ]; then echo '{own}'; else echo '{theirs}'; fi\n"
    )
    two_faced.chmod(0o755)
    with pytest.raises(NotOffered, match=r"is another Python under the account of actions: 3\.11\.9 in /usr"):
        await examine(two_faced, as_worker=ask_as_worker, as_actions=as_another_account(machine))


async def test_an_interpreter_that_is_too_old_is_refused(folder: Path) -> None:
    old = folder / "python"
    old.write_text('#!/bin/sh\necho \'{"version": "3.9.2", "numbers": [3, 9, 2], "base_prefix": "/usr"}\'\n')
    old.chmod(0o755)
    with pytest.raises(NotOffered, match=r"is older than 3\.11"):
        await examine(old, as_worker=ask_as_worker, as_actions=ask_as_worker)
