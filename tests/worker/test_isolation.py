"""Levels of isolation: tried before they are promised, given where they are asked for, and shown as they are."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from attune.domain.definitions import Isolation, Runner
from attune.domain.placement import LEVELS, choose_level
from attune.domain.retry import Outcome
from attune.packs.store import content_folder
from attune.runtime.supervise import CannotStart
from attune.storage.database import Database
from attune.worker import accounts
from attune.worker.accounts import choose_account
from attune.worker.isolation import Confinement, confine
from attune.worker.launcher.order import Account, Walls
from attune.worker.machine import prepare_machine
from attune.worker.plan import Bounds, WorkerPlan
from attune.worker.processes import Children, Marking
from attune.worker.runners.script import ScriptPlan, ScriptRunner
from attune.worker.runners.shell import ShellLanguage
from tests.plugins.report import ONLY_ROOT, not_run
from tests.witness.arrange import make_action, place, request
from tests.witness.waiting import until
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt
from tests.worker.conftest import StartWorker, make_plan

NOBODY = Account(uid=65534, gid=65534)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that every account can enter, unlike those of the tests."""
    folder = Path(tempfile.mkdtemp(prefix="attune-isolation-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        not_run(f"{ONLY_ROOT} can give actions another account", cure="run as root")


def plan_in(folder: Path, **changes: object) -> WorkerPlan:
    return make_plan(folder, folder / "packs", run_as="65534" if os.geteuid() == 0 else None, **changes)


async def run_at(level: Isolation, command: str, plan: WorkerPlan, marking: Marking, **work: object) -> str:
    """What a command printed that demanded this level."""
    children = Children()
    await prepare_machine(plan, marking)
    launcher, confinement = await confine(plan, children)
    scripts = ScriptPlan(
        scratch=plan.scratch,
        marking=marking,
        children=children,
        launcher=launcher,
        confinement=confinement,
        grace_seconds=0.5,
    )
    try:
        runner = ScriptRunner(scripts, ShellLanguage(plan.packs))
        ending = await runner.run(make_attempt(None, command=command, isolation=str(level), **work), Printed())
    finally:
        launcher.stop()
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert isinstance(ending.result, dict)
    return str(ending.result["stdout"])


@pytest.mark.parametrize(
    ("available", "usual", "demanded", "given"),
    [
        ("none", "none", None, "none"),
        ("none user namespace", "user", None, "user"),
        ("none user namespace", "user", "none", "user"),
        ("none user namespace", "user", "namespace", "namespace"),
        # Whoever is not root can give no other account, but more than that.
        ("none namespace", "none", "user", "namespace"),
        ("none user", "user", "namespace", None),
    ],
)
def test_an_action_gets_the_weakest_level_that_is_enough(
    available: str, usual: str, demanded: str | None, given: str | None
) -> None:
    level = choose_level(
        [Isolation(each) for each in available.split()],
        usual=Isolation(usual),
        demanded=Isolation(demanded) if demanded else None,
    )
    assert level == (Isolation(given) if given else None)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("level", [Isolation.USER, Isolation.NAMESPACE])
async def test_an_action_of_another_account_has_a_directory_of_its_own_and_may_open_its_streams(
    open_folder: Path, marking: Marking, level: Isolation
) -> None:
    command = (
        'id -u; stat -c "%a %u" .; stat -c "%a %u" "$ATTUNE_PARAMETER_FILE"; echo said > /dev/stdout; echo > kept;'
        " ls .. 2>/dev/null || echo closed; grep NoNewPrivs /proc/self/status; grep CapBnd /proc/self/status"
    )
    said = await run_at(level, command, plan_in(open_folder), marking, parameter_delivery="file", parameters={"a": 1})
    assert said.split("\n")[:5] == ["65534", "700 65534", "600 65534", "said", "closed"]
    assert "NoNewPrivs:\t1" in said
    assert "CapBnd:\t0000000000000000" in said


@pytest.mark.usefixtures("as_root")
async def test_an_action_of_another_account_can_read_its_pack_and_not_change_it(
    open_folder: Path, marking: Marking
) -> None:
    folder = content_folder(open_folder / "packs", "demo", NO_DIGEST) / "actions"
    folder.mkdir(parents=True)
    (folder / "run.sh").write_text('echo ran; echo x 2>/dev/null >> "$0" || echo refused\n')
    said = await run_at(Isolation.USER, "", plan_in(open_folder), marking, entry_point="run.sh")
    assert said == "ran\nrefused\n"


async def test_in_a_namespace_an_action_sees_only_itself(open_folder: Path, marking: Marking) -> None:
    plan = plan_in(open_folder)
    said = await run_at(Isolation.NAMESPACE, "ls -d /proc/[0-9]* | wc -l; echo $$; echo $PPID", plan, marking)
    count, own, parent = map(int, said.split())
    assert (own, parent) == (2, 1)
    assert count <= 5


@pytest.mark.usefixtures("as_root")
async def test_where_the_account_cannot_enter_actions_are_roots_and_that_is_said(
    open_folder: Path, marking: Marking
) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    plan = plan_in(closed)
    await prepare_machine(plan, marking)
    launcher, confinement = await confine(plan, Children())
    launcher.stop()
    assert (confinement.shown, confinement.highest) == ("none (root)", Isolation.NONE)
    assert confinement.walls_for("user") is None


@pytest.mark.usefixtures("as_root")
async def test_a_demanded_level_that_is_impossible_keeps_the_worker_from_starting(
    open_folder: Path, marking: Marking
) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o700)
    plan = plan_in(closed, isolation=Isolation.USER)
    await prepare_machine(plan, marking)
    with pytest.raises(CannotStart, match=r"closed"):
        await confine(plan, Children())


@pytest.mark.usefixtures("as_root")
async def test_a_passing_trouble_never_makes_actions_roots(open_folder: Path, marking: Marking) -> None:
    # As in a moment in which the account can have no further process.
    plan = plan_in(open_folder, bounds=Bounds(files=1))
    await prepare_machine(plan, marking)
    with pytest.raises(CannotStart, match="kept apart"):
        await confine(plan, Children())


@pytest.mark.usefixtures("as_root")
def test_actions_do_not_get_the_account_that_the_database_was_lent(tmp_path: Path) -> None:
    data = tmp_path / "data" / "postgres"
    data.mkdir(parents=True)
    nobody = choose_account(None, tmp_path)
    assert nobody is not None
    os.chown(data, nobody.uid, nobody.gid)
    assert choose_account(None, tmp_path) == Account(uid=accounts.UNNAMED_UID, gid=accounts.UNNAMED_UID)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(("name", "problem"), [("root", "names root"), ("no-such-account", "no such account")])
def test_an_account_that_cannot_be_meant_keeps_the_worker_from_starting(
    tmp_path: Path, name: str, problem: str
) -> None:
    with pytest.raises(CannotStart, match=problem):
        choose_account(name, tmp_path)


async def test_limits_of_the_settings_reach_the_action(open_folder: Path, marking: Marking) -> None:
    plan = plan_in(open_folder, bounds=Bounds(files=77, memory_mb=512, cpu_seconds=9, file_size_mb=3, processes=0))
    said = await run_at(Isolation.NONE, "ulimit -n; ulimit -d; ulimit -t; ulimit -f; ulimit -c", plan, marking)
    assert said.split() == ["77", str(512 * 1024), "9", str(3 * 2048), "0"]


async def test_a_level_this_worker_lacks_fails_the_attempt_instead_of_running_it(shell: ScriptRunner) -> None:
    ending = await shell.run(make_attempt(None, command="true", isolation="container"), Printed())
    assert ending.failure is not None
    assert ending.failure.code == "cannot_start"


async def test_a_worker_registers_what_it_can_give_and_runs_what_demands_it(
    database: Database, open_folder: Path, start_worker_here: StartWorker
) -> None:
    worker = await start_worker_here(home=open_folder, packs=open_folder / "packs", scratch=open_folder / "scratch")
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT isolation, isolation_usual FROM worker WHERE id = $1", worker.worker_id)
    assert row is not None
    assert LEVELS.index(Isolation(row["isolation"])) >= LEVELS.index(Isolation.NAMESPACE)
    assert row["isolation_usual"] == ("user" if os.geteuid() == 0 else "none")

    await make_action(
        database,
        "demo.shell",
        runner=Runner.SHELL,
        entry_point=None,
        command="echo $$",
        isolation=Isolation.NAMESPACE,
    )
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def succeeded() -> bool:
        async with database.reading() as tx:
            return bool(await tx.fetch_value("SELECT status FROM execution WHERE id = $1", execution) == "succeeded")

    await until(succeeded)
    async with database.reading() as tx:
        result = await tx.fetch_value("SELECT result FROM execution WHERE id = $1", execution)
    assert result["stdout"] == "2\n"


def test_what_is_usual_is_shown_with_a_warning_where_it_is_roots() -> None:
    confinement = Confinement(usual=Isolation.NONE, walls={Isolation.NONE: Walls()})
    assert confinement.shown == ("none (root)" if os.geteuid() == 0 else "none")
    assert replace(confinement, usual=Isolation.USER).shown == "user"
