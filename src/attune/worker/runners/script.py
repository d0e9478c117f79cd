"""Runs actions that are scripts: one process tree for each attempt, whatever language it is written in."""

import asyncio
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from attune.domain.retry import Ending
from attune.packs.read import entry_point_path
from attune.runtime.failpoints import failpoint
from attune.storage.executions import Startable
from attune.worker.delivery import Undeliverable
from attune.worker.environments.build import BuildFailed
from attune.worker.environments.store import Environments, Recipe, Say, StoppedEarly
from attune.worker.isolation import Confinement
from attune.worker.launcher.child import Child, LauncherLost
from attune.worker.launcher.client import Launcher
from attune.worker.launcher.order import Order, OrderTooLarge
from attune.worker.processes import MARKER_VARIABLE, Children, Marking
from attune.worker.results import Captured
from attune.worker.runners.contract import Unrunnable, capture, deliver, make_variables, never_began, read_stream
from attune.worker.runners.protocol import Attempt, Output, Stream, stopped
from attune.worker.runners.script_ending import ending_of, launcher_lost
from attune.worker.runners.workspace import Spares, Workspace, hand_over
from attune.worker.tree import Tree

# Nothing of the worker's own environment reaches a script, its search path included.
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Spawner(Protocol):
    """Starts processes; the launcher is one."""

    async def spawn(self, order: Order, *, stdin: bytes | None = None) -> Child:
        """Start it; without `stdin` it has nothing to read. Raises OSError, OrderTooLarge, LauncherLost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is started for one attempt; `environment` goes on top of what every script gets."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    # Who starts it, if there is a quicker way than the launcher's.
    by: Spawner | None = None


class Language(Protocol):
    """How an action of one runtime becomes a command."""

    async def prepare(self, attempt: Attempt, directory: Path, say: Say) -> Command:
        """The command; raises Unrunnable and StoppedEarly. May put files into the attempt's private directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPlan:
    """Where scripts keep what they write, and how they are started and ended; the same for every language."""

    scratch: Path
    marking: Marking
    children: Children
    launcher: Launcher
    confinement: Confinement
    grace_seconds: float
    api_url: str | None = None
    # Set when something could not be written, so that the disk is looked at.
    disk_doubted: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptRunner:
    """One process tree for each attempt, in a private directory of which nothing is left afterwards."""

    def __init__(self, plan: ScriptPlan, language: Language) -> None:
        self.plan = plan
        self.language = language
        self._spares = Spares(plan.scratch)

    async def run(self, attempt: Attempt, output: Output) -> Ending:
        walls = self.plan.confinement.walls_for(attempt.work.isolation)
        workspace: Workspace | None = None
        try:
            if walls is None:
                raise Unrunnable("cannot_start", f"this worker cannot give isolation {attempt.work.isolation}")
            workspace = self._spares.take(attempt.work.execution_id, walls)
            command = await self.language.prepare(attempt, workspace.directory, _sayer(output))
            fed = deliver(attempt.work, workspace.directory)
            return await self._run_in(attempt, output, workspace, command=command, fed=fed)
        except StoppedEarly:
            assert attempt.stop.reason is not None  # noqa: S101  that is what it means
            return stopped(attempt, attempt.stop.reason)
        except LauncherLost:
            return launcher_lost(attempt)
        except (Unrunnable, Undeliverable, OSError) as error:
            return never_began(attempt, error, disk_doubted=self.plan.disk_doubted)
        finally:
            if workspace is not None:
                await self._spares.give_back(workspace)

    async def _run_in(
        self, attempt: Attempt, output: Output, workspace: Workspace, *, command: Command, fed: bytes | None
    ) -> Ending:
        if attempt.stop.reason is not None:
            return stopped(attempt, attempt.stop.reason)
        directory = workspace.directory
        environment = {**self._environment(attempt, directory), **command.environment}
        order = Order(words=command.words, environment=environment, directory=directory, walls=workspace.walls)
        child = await self._start(attempt, command, order, fed=fed)
        tree = Tree(
            child, self.plan.children, marker=environment[MARKER_VARIABLE], grace_seconds=self.plan.grace_seconds
        )
        captured = capture(attempt)
        attempt.stop.listen(tree.stop)
        try:
            failpoint("worker.spawned.before_watch")
            await _attend(child, tree, captured=captured, output=output)
        except BaseException:
            # The worker itself is being stopped by force: nothing may be left running.
            tree.kill()
            raise
        finally:
            attempt.stop.forget_listener()
        workspace.left = tree.gone
        try:
            if child.not_entered is not None:
                raise _unstarted(command, child.not_entered.number, str(child.not_entered))
            return ending_of(attempt, child.exit_code, captured, directory, whole_tree_gone=tree.gone)
        finally:
            captured[Stream.STDOUT].close()

    async def _start(self, attempt: Attempt, command: Command, order: Order, *, fed: bytes | None) -> Child:
        hand_over(order.directory, order.walls.account)
        attempt.check_clock()
        try:
            return await (command.by or self.plan.launcher).spawn(order, stdin=fed)
        except (OrderTooLarge, ValueError) as error:
            raise Unrunnable("cannot_start", str(error)) from None
        except OSError as error:
            raise _unstarted(command, error.errno, error.strerror or str(error)) from None

    def _environment(self, attempt: Attempt, directory: Path) -> dict[str, str]:
        work, place = attempt.work, str(directory)
        marker = self.plan.marking.marker(work.execution_id, work.attempt)
        variables = make_variables(attempt, home=place, folder=place, marker=marker, api_url=self.plan.api_url)
        return {"PATH": PATH, **variables}


def entry_file(folder: Path, work: Startable) -> Path:
    """Where an action's script lies in its pack; raises Unrunnable if it does not."""
    entry = folder / entry_point_path(work.entry_point or "")
    if not entry.is_file():
        raise Unrunnable("missing_entry_point", f"there is no file {work.entry_point} in pack {work.pack_ref}")
    return entry


async def environment_for(attempt: Attempt, recipe: Recipe, environments: Environments, say: Say) -> Path:
    """The folder of what an action's pack needs; raises Unrunnable and StoppedEarly."""
    try:
        return await environments.ensure(recipe, stop=attempt.stop, say=say)
    except BuildFailed as error:
        raise Unrunnable("environment_failed", str(error)) from None


def _unstarted(command: Command, number: int | None, why: str) -> Unrunnable:
    program = command.words[0]
    if number == errno.ENOENT and not Path(program).exists():
        return Unrunnable("missing_interpreter", f"{program} {why}")
    return Unrunnable("cannot_start", f"{program} {why}")


def _sayer(output: Output) -> Say:
    async def say(text: str) -> None:
        await output.write(Stream.STDERR, f"attune: {text}\n".encode())

    return say


async def _attend(child: Child, tree: Tree, *, captured: Mapping[Stream, Captured], output: Output) -> None:
    """Read both streams to their end, and see the whole tree off."""
    readers = asyncio.gather(
        read_stream(child.stdout, Stream.STDOUT, captured[Stream.STDOUT], output),
        read_stream(child.stderr, Stream.STDERR, captured[Stream.STDERR], output),
    )
    try:
        await child.exited
        await tree.see_off(readers)
        if tree.gone:  # A process that outlives even KILL must not keep the attempt open.
            await readers
    finally:
        readers.cancel()
        child.close()
