"""Runs scripts and commands with a shell."""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attune.domain.definitions import OutputFormat, ParameterDelivery
from attune.domain.json_values import Json
from attune.domain.retry import Ending
from attune.packs.store import content_folder
from attune.storage.executions import Startable
from attune.worker.delivery import Undeliverable, write_parameters
from attune.worker.launch import Child, launch
from attune.worker.processes import MARKER_VARIABLE, Children, Marking
from attune.worker.results import (
    PARSERS,
    RESULT_BYTES_MAX,
    BadOutput,
    Captured,
    OutputTooLarge,
    finish_with,
    parse_json,
    tails,
)
from attune.worker.runners.protocol import Attempt, Output, Stream, failed, stopped
from attune.worker.tree import Tree

SHELL: Final = "/bin/sh"
# Nothing of the worker's own environment reaches a script, its search path included.
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHEBANG_BYTES_MAX: Final = 256
READ_BYTES: Final = 64 * 1024
ACTIONS_FOLDER: Final = "actions"
COMMAND_FILE: Final = "command"
PARAMETERS_FILE: Final = "parameters"
OUTPUT_FILE: Final = "output.json"
# The kernel takes arguments of up to 128 KiB.
ARGUMENT_CHARACTERS_MAX: Final = 16 * 1024
# If somebody else took the exit code away.
UNKNOWN_EXIT: Final = 255


class Unrunnable(Exception):
    """There is nothing to run; the code and message are the execution's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellPlan:
    """Where a shell runner finds scripts and keeps what they write, and how it starts and ends them."""

    packs: Path
    scratch: Path
    marking: Marking
    children: Children
    guards: Sequence[str]
    grace_seconds: float
    api_url: str | None = None


class ShellRunner:
    """One process tree for each attempt, in a private directory that is removed afterwards."""

    def __init__(self, plan: ShellPlan) -> None:
        self._plan = plan

    async def run(self, attempt: Attempt, output: Output) -> Ending:
        directory = Path(tempfile.mkdtemp(prefix=f"{attempt.work.execution_id}-", dir=self._plan.scratch))  # Mode 0700.
        try:
            command = self._command(attempt.work, directory)
            fed = self._deliver(attempt.work, directory)
            return await self._run_in(attempt, output, directory, command=command, fed=fed)
        except Unrunnable as error:
            return failed(attempt, error.code, str(error))
        except Undeliverable as error:
            return failed(attempt, "bad_parameters", str(error))
        finally:
            await _remove(directory)

    async def _run_in(
        self, attempt: Attempt, output: Output, directory: Path, *, command: Sequence[str], fed: bytes | None
    ) -> Ending:
        if attempt.stop.reason is not None:
            return stopped(attempt, attempt.stop.reason)
        environment = self._environment(attempt.work, directory, fed=fed is not None)
        marker = environment[MARKER_VARIABLE]
        attempt.check_clock()
        try:
            child = await self._launch(command, directory, environment, feeds=fed is not None)
        except OSError as error:
            return failed(attempt, "cannot_start", f"{command[0]} cannot be started: {error.strerror}")
        tree = Tree(child, self._plan.children, marker=marker, grace_seconds=self._plan.grace_seconds)
        captured = {Stream.STDOUT: Captured(), Stream.STDERR: Captured()}
        attempt.stop.listen(tree.stop)
        try:
            exit_code = await _attend(child, tree, fed, captured=captured, output=output)
        except BaseException:
            # The worker itself is being stopped by force: nothing may be left running.
            tree.kill()
            raise
        finally:
            attempt.stop.forget_listener()
            self._plan.children.own.discard(child.pid)
        return _ending(attempt, exit_code, captured, directory / OUTPUT_FILE, whole_tree_gone=tree.gone)

    async def _launch(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str], *, feeds: bool
    ) -> Child:
        children = self._plan.children
        children.starting += 1
        try:
            child = await launch(
                command, guards=self._plan.guards, directory=directory, environment=environment, feeds=feeds
            )
            children.own.add(child.pid)
        finally:
            children.starting -= 1
        return child

    def _command(self, work: Startable, directory: Path) -> list[str]:
        if work.entry_point is not None:
            folder = content_folder(self._plan.packs, work.pack_ref, work.pack_digest)
            return _script_command(folder / ACTIONS_FOLDER / work.entry_point)
        if work.command_from is None:
            text = work.command
        else:
            value = work.parameters.get(work.command_from) if isinstance(work.parameters, dict) else None
            text = value if isinstance(value, str) else None
        if not text:
            raise Unrunnable("missing_entry_point", f"action {work.action_ref} says no command")
        if work.command_from is None and len(text) <= ARGUMENT_CHARACTERS_MAX:
            return [SHELL, "-c", text]
        # In a file, because every account of the machine can read the arguments of a process, and a parameter may
        # be a secret.
        return [SHELL, str(_write_private(directory / COMMAND_FILE, text.encode()))]

    def _deliver(self, work: Startable, directory: Path) -> bytes | None:
        """The bytes for standard input; None if the parameters lie in a file instead."""
        parameters: Mapping[str, Json] = work.parameters if isinstance(work.parameters, dict) else {}
        content = write_parameters(parameters, work.parameter_format)
        if work.parameter_delivery == ParameterDelivery.STDIN:
            return content
        _write_private(directory / PARAMETERS_FILE, content)
        return None

    def _environment(self, work: Startable, directory: Path, *, fed: bool) -> dict[str, str]:
        environment = {
            "PATH": PATH,
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "TMPDIR": str(directory),
            "ATTUNE_EXECUTION_ID": str(work.execution_id),
            "ATTUNE_ACTION": work.action_ref,
            "ATTUNE_PACK": work.pack_ref,
            "ATTUNE_ATTEMPT": str(work.attempt),
            # The same for every attempt, so that a script can make its own effects happen once.
            "ATTUNE_IDEMPOTENCY_KEY": f"execution-{work.execution_id}",
            "ATTUNE_OUTPUT": str(directory / OUTPUT_FILE),
            MARKER_VARIABLE: self._plan.marking.marker(work.execution_id, work.attempt),
        }
        if not fed:
            environment["ATTUNE_PARAMETER_FILE"] = str(directory / PARAMETERS_FILE)
        if self._plan.api_url:
            environment["ATTUNE_API_URL"] = self._plan.api_url
        if work.traceparent:
            environment["TRACEPARENT"] = work.traceparent
        return environment


async def _attend(
    child: Child,
    tree: Tree,
    fed: bytes | None,
    *,
    captured: Mapping[Stream, Captured],
    output: Output,
) -> int:
    """Feed, read both streams to their end, and see the whole tree off; returns the exit code."""
    readers = asyncio.gather(
        _read(child.stdout, Stream.STDOUT, captured[Stream.STDOUT], output),
        _read(child.stderr, Stream.STDERR, captured[Stream.STDERR], output),
        _feed(child, fed),
    )
    try:
        await child.exited
        await tree.see_off(readers)
        if tree.gone:  # A process that outlives even KILL must not keep the attempt open.
            await readers
    finally:
        readers.cancel()
        child.close()
    return child.exit_code if child.exit_code is not None else UNKNOWN_EXIT


async def _feed(child: Child, content: bytes | None) -> None:
    if child.stdin is None or content is None:
        return
    # A script need not read its parameters.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.write(content)
        await child.stdin.drain()
    child.stdin.close()


async def _read(reader: asyncio.StreamReader, stream: Stream, captured: Captured, output: Output) -> None:
    while content := await reader.read(READ_BYTES):
        captured.add(content)
        await output.write(stream, content)


def _ending(
    attempt: Attempt, exit_code: int, captured: Mapping[Stream, Captured], written: Path, *, whole_tree_gone: bool
) -> Ending:
    seen = tails(exit_code, captured[Stream.STDOUT], captured[Stream.STDERR])
    if not whole_tree_gone:
        return failed(attempt, "tree_survived", "some of its processes could not be killed", result=seen)
    if attempt.stop.reason is not None:
        return stopped(attempt, attempt.stop.reason, result=seen)
    if exit_code != 0:
        return failed(attempt, "exit_code", _say_exit(exit_code), result=seen, exit_code=exit_code)
    try:
        result = _result(attempt.work, captured[Stream.STDOUT], written, seen)
    except BadOutput as error:
        return failed(attempt, "bad_output", str(error), result=seen, exit_code=exit_code)
    except OutputTooLarge as error:
        return failed(attempt, "output_too_large", str(error), result=seen, exit_code=exit_code)
    return finish_with(attempt, result, exit_code=exit_code, seen=seen)


def _say_exit(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"


def _result(work: Startable, stdout: Captured, written: Path, seen: Json) -> Json:
    """The file the script wrote, else its standard output in the format its action promises."""
    file = _read_written(written)
    if file is not None:
        return parse_json(file)
    if work.output_format == OutputFormat.TEXT:
        return seen
    return PARSERS[work.output_format](stdout)


def _read_written(path: Path) -> Captured | None:
    try:
        # A link could make the worker read a file that the script may not.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadOutput(f"the output file cannot be read: {error.strerror}") from None
    captured = Captured()
    try:
        with os.fdopen(descriptor, "rb") as file:
            captured.add(file.read(RESULT_BYTES_MAX + 1))
    except OSError as error:
        raise BadOutput(f"the output file cannot be read: {error.strerror}") from None
    return captured if captured.total else None


def _script_command(script: Path) -> list[str]:
    """The interpreter its first line names, else the shell."""
    try:
        with script.open("rb") as file:
            first = file.read(SHEBANG_BYTES_MAX).split(b"\n", 1)[0]
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unrunnable("missing_entry_point", f"{script.name} cannot be read: {reason}") from None
    words = shlex.split(first[2:].decode(errors="replace")) if first.startswith(b"#!") else []
    command = words or [SHELL]
    if shutil.which(command[0], path=PATH) is None:
        raise Unrunnable("missing_interpreter", f"{script.name} asks for {command[0]}, which is not on this worker")
    return [*command, str(script)]


def _write_private(path: Path, content: bytes) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path


async def _remove(directory: Path) -> None:
    """Most directories hold at most our own files; what a script left may be large, so a thread removes it."""
    if not _remove_if_small(directory):
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True))


def _remove_if_small(directory: Path) -> bool:
    for names in ((), (COMMAND_FILE, PARAMETERS_FILE, OUTPUT_FILE)):
        for name in names:
            with contextlib.suppress(OSError):
                (directory / name).unlink()
        with contextlib.suppress(OSError):
            directory.rmdir()
            return True
    return False
