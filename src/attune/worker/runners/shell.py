"""Shell scripts and commands."""

import shlex
import shutil
from pathlib import Path
from typing import Final

from attune.packs.store import content_folder
from attune.storage.executions import Startable
from attune.worker.environments.store import Say
from attune.worker.runners.contract import Unrunnable
from attune.worker.runners.protocol import Attempt
from attune.worker.runners.script import PATH, Command, entry_file
from attune.worker.runners.workspace import COMMAND_FILE, write_private

SHELL: Final = "/bin/sh"
SHEBANG_BYTES_MAX: Final = 256
# The kernel takes arguments of up to 128 KiB.
ARGUMENT_CHARACTERS_MAX: Final = 16 * 1024


class ShellLanguage:
    """A script with the interpreter its first line names, or a command for the shell."""

    def __init__(self, packs: Path) -> None:
        self._packs = packs

    async def prepare(self, attempt: Attempt, directory: Path, say: Say) -> Command:  # noqa: ARG002  quick enough
        work = attempt.work
        if work.entry_point is not None:
            folder = content_folder(self._packs, work.pack_ref, work.pack_digest)
            return Command(words=_script_command(entry_file(folder, work)))
        text = command_text(work)
        if work.command_from is None and len(text) <= ARGUMENT_CHARACTERS_MAX:
            return Command(words=[SHELL, "-c", text])
        # In a file, because every account of the machine can read the arguments of a process, and a parameter may
        # be a secret.
        return Command(words=[SHELL, str(write_private(directory / COMMAND_FILE, text.encode()))])


def command_text(work: Startable) -> str:
    """The command an action says, or is told."""
    if work.command_from is None:
        text = work.command
    else:
        value = work.parameters.get(work.command_from) if isinstance(work.parameters, dict) else None
        text = value if isinstance(value, str) else None
    if not text:
        raise Unrunnable("missing_entry_point", f"action {work.action_ref} says no command")
    return text


def _script_command(script: Path) -> list[str]:
    command = interpreter_of(script)
    if shutil.which(command[0], path=PATH) is None:
        raise Unrunnable("missing_interpreter", f"{script.name} asks for {command[0]}, which is not on this worker")
    return [*command, str(script)]


def interpreter_of(script: Path) -> list[str]:
    """What its first line names, else the shell."""
    try:
        with script.open("rb") as file:
            first = file.read(SHEBANG_BYTES_MAX).split(b"\n", 1)[0]
    except OSError as error:
        reason = error.strerror or str(error)
        raise Unrunnable("missing_entry_point", f"{script.name} cannot be read: {reason}") from None
    words = shlex.split(first[2:].decode(errors="replace")) if first.startswith(b"#!") else []
    return words or [SHELL]
