"""What a worker offers: a runner for everything that was found on its machine, and a sentence about everything else."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.domain.definitions import Isolation
from attune.domain.definitions import Runner as RunnerName
from attune.domain.placement import LEVELS
from attune.worker import programs
from attune.worker.containers.engine import Engine
from attune.worker.environments.build import Builder
from attune.worker.environments.node import NodeEnvironments
from attune.worker.environments.python import PythonEnvironments
from attune.worker.environments.store import Environments
from attune.worker.forking.pool import ForkServers
from attune.worker.isolation import Confinement
from attune.worker.launcher.client import PROGRAM as LAUNCH_SERVER
from attune.worker.launcher.order import Account, Walls
from attune.worker.plan import WorkerPlan
from attune.worker.runners.container import ContainerPlan, ContainerRunner
from attune.worker.runners.http import HttpRunner
from attune.worker.runners.native import NativeRunner
from attune.worker.runners.node import NodeLanguage
from attune.worker.runners.protocol import Runner
from attune.worker.runners.python import PythonLanguage
from attune.worker.runners.script import ScriptPlan, ScriptRunner
from attune.worker.runners.shell import ShellLanguage
from attune.worker.runtimes.ask import NotOffered, ask_as_worker, ask_behind
from attune.worker.runtimes.node import find_node
from attune.worker.runtimes.python import find_python

PYTHON_HOST: Final = "python_host.py"
FORK_SERVER: Final = "fork_server.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The runners of one worker; `details` has a sentence for each runtime that was looked for, found or not."""

    runners: Mapping[str, Runner]
    details: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the runners of one worker stand on."""

    plan: WorkerPlan
    scripts: ScriptPlan
    environments: Environments
    builder: Builder
    # Where the programs lie that run under an action's interpreter.
    programs: Path
    fork_servers: ForkServers
    # The worker's own variables: they say where packages come from.
    variables: Mapping[str, str]
    engine: Engine | NotOffered


async def probe_runtimes(ground: Ground) -> Offer:
    """Look at the machine and make a runner for everything that works."""
    runners: dict[str, Runner] = {
        RunnerName.NATIVE: NativeRunner(),
        RunnerName.SHELL: ScriptRunner(ground.scripts, ShellLanguage(ground.plan.packs)),
        RunnerName.HTTP: HttpRunner(allow=ground.plan.http_allow, version=ground.plan.version),
    }
    details: dict[str, str] = {}
    looked_for = (
        (RunnerName.PYTHON, _offer_python),
        (RunnerName.NODE, _offer_node),
        (RunnerName.CONTAINER, _offer_containers),
    )
    for name, offer in looked_for:
        try:
            runners[name], details[name] = await offer(ground)
        except NotOffered as error:
            details[name] = f"not offered: {error}"
    return Offer(runners=runners, details=details)


async def _offer_python(ground: Ground) -> tuple[Runner, str]:
    """One Python for each account that actions may have here: not every account can reach the worker's own."""
    plan, confinement = ground.plan, ground.scripts.confinement
    pythons: dict[Account | None, PythonEnvironments | NotOffered] = {}
    for level, walls in _levels(confinement):
        if walls.account not in pythons:
            pythons[walls.account] = await _try_python(ground, walls)
            if level is confinement.usual and isinstance(found := pythons[walls.account], NotOffered):
                raise found
    language = PythonLanguage(
        plan.packs,
        ground.programs / PYTHON_HOST,
        ground.environments,
        pythons=pythons,
        walls_of=lambda work: confinement.walls_for(work.isolation),
        servers=ground.fork_servers if plan.fork_server else None,
    )
    found_all = [one.describe() if isinstance(one, PythonEnvironments) else f"not {one}" for one in pythons.values()]
    return ScriptRunner(ground.scripts, language), "; behind stronger walls ".join(dict.fromkeys(found_all))


async def _try_python(ground: Ground, walls: Walls) -> PythonEnvironments | NotOffered:
    as_actions = ask_behind(ground.scripts.launcher, walls)
    try:
        interpreter = await find_python(ground.plan.python, as_worker=ask_as_worker, as_actions=as_actions)
    except NotOffered as error:
        return error
    return PythonEnvironments(
        interpreter=interpreter,
        builder=ground.builder,
        cache=ground.plan.environments / "cache" / "uv",
        variables=ground.variables,
        as_worker=ask_as_worker,
        as_actions=as_actions,
    )


def _levels(confinement: Confinement) -> list[tuple[Isolation, Walls]]:
    """The levels that actions here can have, weakest first; nothing runs below the usual one."""
    least = LEVELS.index(confinement.usual)
    return [(level, confinement.walls[level]) for level in LEVELS[least:] if level in confinement.walls]


async def _offer_node(ground: Ground) -> tuple[Runner, str]:
    plan = ground.plan
    confinement = ground.scripts.confinement
    as_actions = ask_behind(ground.scripts.launcher, confinement.walls[confinement.usual])
    node = await find_node(plan.node, as_actions=as_actions)
    making = None
    if node.npm is not None:
        cache = plan.environments / "cache" / "npm"
        making = NodeEnvironments(
            node=node.path,
            npm=node.npm,
            version=node.version,
            builder=ground.builder,
            cache=cache,
            variables=ground.variables,
        )
    language = NodeLanguage(plan.packs, node, ground.environments, making)
    return ScriptRunner(ground.scripts, language), node.describe()


async def _offer_containers(ground: Ground) -> tuple[Runner, str]:
    engine, scripts = ground.engine, ground.scripts
    if isinstance(engine, NotOffered):
        raise engine
    plan = ContainerPlan(
        engine=engine,
        packs=ground.plan.packs,
        scratch=scripts.scratch,
        marking=scripts.marking,
        grace_seconds=scripts.grace_seconds,
        api_url=scripts.api_url,
        disk_doubted=scripts.disk_doubted,
    )
    return ContainerRunner(plan), engine.describe()


def lay_out(folder: Path) -> Path:
    """Copy the programs to where the account of actions can read them: Attune itself may lie where it cannot go.

    Their folder is named by their digest, so that workers of two versions do not overwrite each other's.
    """
    here = Path(str(programs.__file__)).parent
    contents = {name: (here / name).read_bytes() for name in (PYTHON_HOST, FORK_SERVER)}
    contents["launch_server.py"] = LAUNCH_SERVER.read_bytes()
    target = folder / hashlib.sha256(b"\0".join(contents.values())).hexdigest()[:12]
    target.mkdir(mode=0o755, parents=True, exist_ok=True)
    for directory in (folder.parent, folder, target):
        directory.chmod(0o755)
    for name, content in contents.items():
        aside = target / f".{name}.{os.getpid()}"
        aside.write_bytes(content)
        aside.chmod(0o644)
        aside.replace(target / name)
    return target
