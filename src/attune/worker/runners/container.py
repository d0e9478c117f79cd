"""Runs actions in containers: one for each attempt, gone with everything in it when the attempt ends."""

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from attune.domain.definitions import ContainerLimits, ContainerNetwork
from attune.domain.retry import Ending
from attune.packs.store import content_folder
from attune.storage.executions import Startable
from attune.worker.containers.engine import LABEL, NOBODY, Engine, complaint, instance_label, worker_label
from attune.worker.containers.options import HOME, PACK, SHARED, Container, Mounts, environment_lines, run_words
from attune.worker.containers.running import Running
from attune.worker.delivery import Undeliverable
from attune.worker.launcher.order import Account
from attune.worker.processes import MARKER_VARIABLE, Marking
from attune.worker.results import Captured
from attune.worker.runners.contract import Unrunnable, capture, deliver, make_variables, never_began
from attune.worker.runners.protocol import Attempt, Output, Stream, failed, stopped
from attune.worker.runners.script import entry_file
from attune.worker.runners.script_ending import ending_of
from attune.worker.runners.shell import SHELL, command_text, interpreter_of
from attune.worker.runners.workspace import COMMAND_FILE, hand_over, make_directory, remove_directory, write_private

# Whoever runs inside, where root makes the containers.
_INSIDE: Final = Account(uid=NOBODY, gid=NOBODY)
# What podman and docker exit with if it was not the container that failed.
ENGINE_FAILED: Final = 125
# The words of catatonit, of tini, and of runc and crun through podman and docker.
_NOT_EXECUTED: Final = re.compile(
    r"^ERROR \(catatonit:\d+\): failed to exec pid1|^\[FATAL +tini.*\] exec .* failed"
    r"|^(Error|docker): .*unable to start container process: exec: "
)
_SHARED_FOLDER: Final = "shared"
_ID_FILE: Final = "id"
_ENVIRONMENT_FILE: Final = "environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    """Where containers share files with the worker, and how they are named, started and ended."""

    engine: Engine
    packs: Path
    scratch: Path
    marking: Marking
    grace_seconds: float
    api_url: str | None = None
    # Set when something could not be written, so that the disk is looked at.
    disk_doubted: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    container: Container
    shared: Path
    label: str
    fed: bytes
    variables: Mapping[str, str] = field(default_factory=dict)


class ContainerRunner:
    """One container for each attempt."""

    def __init__(self, plan: ContainerPlan) -> None:
        self._plan = plan

    async def run(self, attempt: Attempt, output: Output) -> Ending:
        directory: Path | None = None
        try:
            directory = make_directory(self._plan.scratch, attempt.work.execution_id)
            prepared = self._prepare(attempt, directory)
            return await self._run_in(attempt, output, directory, prepared)
        except (Unrunnable, Undeliverable, OSError) as error:
            return never_began(attempt, error, disk_doubted=self._plan.disk_doubted)
        finally:
            if directory is not None:
                await remove_directory(directory)

    def _prepare(self, attempt: Attempt, directory: Path) -> _Prepared:
        plan, work, shared = self._plan, attempt.work, directory / _SHARED_FOLDER
        if not work.image:
            raise Unrunnable("missing_image", f"action {work.action_ref} names no image")
        shared.mkdir(mode=0o700)
        pack = content_folder(plan.packs, work.pack_ref, work.pack_digest) if work.entry_point else None
        words = _words(work, pack, shared)
        fed = deliver(work, shared) or b""
        limits = msgspec.convert(work.container or {}, ContainerLimits)
        marker = plan.marking.marker(work.execution_id, work.attempt)
        # Without a network there is no way to the API, and no need for its token.
        api_url = plan.api_url if limits.network is not ContainerNetwork.NONE else None
        # The search path is the image's own.
        variables = make_variables(attempt, home=HOME, folder=SHARED, marker=marker, api_url=api_url)
        hand_over(shared, _INSIDE if os.geteuid() == 0 else None)
        label = f"{LABEL}.attempt={marker}"
        labels = [
            worker_label(plan.marking),
            instance_label(plan.marking),
            f"{LABEL}.execution={work.execution_id}",
            label,
        ]
        container = Container(
            image=work.image,
            limits=limits,
            labels=labels,
            words=words,
            mounts=Mounts(shared=shared, pack=pack),
            id_file=directory / _ID_FILE,
            environment_file=write_private(directory / _ENVIRONMENT_FILE, environment_lines(variables)),
        )
        return _Prepared(container=container, shared=shared, label=label, fed=fed, variables={MARKER_VARIABLE: marker})

    async def _run_in(self, attempt: Attempt, output: Output, directory: Path, prepared: _Prepared) -> Ending:
        if attempt.stop.reason is not None:
            return stopped(attempt, attempt.stop.reason)
        engine = self._plan.engine
        attempt.check_clock()
        try:
            process = await engine.start(
                run_words(engine, prepared.container), feeds=True, variables=prepared.variables
            )
        except OSError as error:
            raise Unrunnable("cannot_start", f"{engine.program} cannot be started: {error.strerror}") from None
        running = Running(
            engine,
            process,
            id_file=directory / _ID_FILE,
            label=prepared.label,
            grace_seconds=self._plan.grace_seconds,
        )
        captured = capture(attempt)
        attempt.stop.listen(running.stop)
        try:
            exit_code = await running.attend(prepared.fed, captured=captured, output=output)
            return await self._ending_of(attempt, prepared, exit_code, running=running, captured=captured)
        finally:
            attempt.stop.forget_listener()
            captured[Stream.STDOUT].close()

    async def _ending_of(
        self,
        attempt: Attempt,
        prepared: _Prepared,
        exit_code: int,
        *,
        running: Running,
        captured: Mapping[Stream, Captured],
    ) -> Ending:
        if exit_code == ENGINE_FAILED and running.container is None and not running.stopped:
            return await self._explain(attempt, captured[Stream.STDERR])
        if exit_code != 0 and (reason := _not_executed(captured)):
            program = prepared.container.words[0] if prepared.container.words else "what it says"
            message = f"image {prepared.container.image} cannot run {program}: {reason}"
            return failed(attempt, "missing_interpreter", message, exit_code=exit_code)
        return ending_of(attempt, exit_code, captured, prepared.shared, whole_tree_gone=running.gone)

    async def _explain(self, attempt: Attempt, stderr: Captured) -> Ending:
        """No container came to be."""
        engine, image = self._plan.engine, attempt.work.image or ""
        if not await engine.has_image(image):
            message = f"image {image} is not on this worker; fetch it with: {engine.kind} pull {image}"
            return failed(attempt, "missing_image", message)
        message = complaint(stderr.tail()) or f"{engine.kind} made no container"
        return failed(attempt, "container_failed", message)


def _not_executed(captured: Mapping[Stream, Captured]) -> str | None:
    """Why nothing of the action has run: said by the first process, or by whoever made the container."""
    said = complaint(captured[Stream.STDERR].tail())
    return said if captured[Stream.STDOUT].total == 0 and _NOT_EXECUTED.search(said) else None


def _words(work: Startable, pack: Path | None, shared: Path) -> list[str]:
    """What runs inside; nothing leaves it to the image."""
    if work.entry_point is not None and pack is not None:
        script = entry_file(pack, work)
        return [*interpreter_of(script), f"{PACK}/{script.relative_to(pack)}"]
    if work.command is None and work.command_from is None:
        return []
    # In a file, as every command that may hold a parameter: words are for everybody to read.
    write_private(shared / COMMAND_FILE, command_text(work).encode())
    return [SHELL, f"{SHARED}/{COMMAND_FILE}"]
