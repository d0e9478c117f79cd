"""The program that makes containers, podman or docker: both understand every word said here."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from attune.worker.processes import Children, Marking

# A question to the program itself: a list, a kill. A busy disk may take its time.
CALL_SECONDS_MAX: Final = 60.0
# Labels by which containers are found again; every one of them begins with this.
LABEL: Final = "attune"
# Where root's containers run: no account of the machine, and no rights to files of one.
NOBODY: Final = 65_534
# More than one round means that something was being made while the others were removed.
REMOVE_ROUNDS_MAX: Final = 10
_AGAIN_SECONDS: Final = 0.1

# What the program may need of the worker's own environment: where its files, its daemon and its login are.
_NEEDED: Final = frozenset({"HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"})
_NEEDED_PREFIXES: Final = ("CONTAINERS_", "DOCKER_", "PODMAN_", "REGISTRY_AUTH", "DBUS_SESSION_BUS_ADDRESS")


class EngineKind(StrEnum):
    """The programs that are known."""

    PODMAN = "podman"
    DOCKER = "docker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a call ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def problem(self) -> str:
        """What was wrong, in its own words."""
        return complaint(self.stderr) or complaint(self.stdout) or f"it exited with {self.exit_code}"


def complaint(text: str) -> str:
    """The last line that says something; docker's very last one names its manual."""
    lines = [line for line in text.strip().splitlines() if not line.startswith("See 'docker")]
    return lines[-1].strip() if lines else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One program that was found; `init`: it can give containers a first process that takes leave of the others."""

    kind: EngineKind
    program: str
    environment: Mapping[str, str]
    children: Children
    init: bool = True
    # The words that say whom a container runs as.
    account: Sequence[str] = ()

    def describe(self) -> str:
        """For people."""
        return f"{self.kind} ({self.program})" + ("" if self.init else "; without an init program for containers")

    async def call(self, *words: str, stdin: bytes | None = None) -> Said:
        """Ask something that ends by itself; after a minute it is taken for hung."""
        process = await self.start(words, feeds=stdin is not None)
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                stdout, stderr = await process.communicate(stdin)
        except TimeoutError:
            return Said(exit_code=-1, stdout="", stderr=f"no answer within {CALL_SECONDS_MAX:g} s")
        finally:
            await self.see_off(process)
        code = process.returncode if process.returncode is not None else -1
        return Said(exit_code=code, stdout=stdout.decode(errors="replace"), stderr=stderr.decode(errors="replace"))

    async def start(
        self, words: Sequence[str], *, feeds: bool, variables: Mapping[str, str] | None = None
    ) -> asyncio.subprocess.Process:
        """Start the program; whoever starts it sees it off."""
        self.children.starting += 1
        try:
            process = await asyncio.create_subprocess_exec(
                self.program,
                *words,
                stdin=asyncio.subprocess.PIPE if feeds else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                cwd="/",
                env={**self.environment, **(variables or {})},
            )
            self.children.own.add(process.pid)
        finally:
            self.children.starting -= 1
        return process

    async def see_off(self, process: asyncio.subprocess.Process) -> None:
        """Make sure that it has ended."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self.children.own.discard(process.pid)

    async def has_image(self, image: str) -> bool:
        return (await self.call("image", "inspect", image)).exit_code == 0

    async def signal(self, container: str, name: str) -> None:
        """Send a signal to a container's first process; one that is gone needs none."""
        await self.call("kill", "--signal", name, container)

    async def remove_all(self, label: str) -> bool:
        """End and remove every container with this label; False if some will not go."""
        for _ in range(REMOVE_ROUNDS_MAX):
            listed = await self.call("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}")
            found = listed.stdout.split()
            if listed.exit_code == 0 and not found:
                return True
            for container in found:
                # First, because podman's own way of removing asks politely and waits.
                await self.signal(container, "KILL")
            if found:
                await self.call("rm", "--force", *found)
            await asyncio.sleep(_AGAIN_SECONDS)
        return False


def worker_label(marking: Marking) -> str:
    """On the containers of every start of this worker."""
    return f"{LABEL}.worker={marking.worker_prefix}"


def instance_label(marking: Marking) -> str:
    """On the containers of this start."""
    return f"{LABEL}.instance={marking.prefix}"


def accounts(kind: EngineKind) -> list[tuple[str, ...]]:
    """Whom a container may run as, the best first: nobody if the worker is root, else whoever the worker is."""
    if os.geteuid() == 0:
        return [("--user", f"{NOBODY}:{NOBODY}")]
    own = ("--user", f"{os.geteuid()}:{os.getegid()}")
    if kind is EngineKind.DOCKER:
        return [own]
    # Podman gives the worker's account the number 0 inside; another one takes a range of numbers in /etc/subuid.
    return [("--userns", "keep-id", *own), ("--user", "0:0")]


def needed_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The part of the worker's environment that the program is given."""
    kept = {name: value for name, value in own.items() if name in _NEEDED or name.startswith(_NEEDED_PREFIXES)}
    return {"PATH": os.defpath, **kept, "LANG": "C.UTF-8"}
