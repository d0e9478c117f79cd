"""A worker without a database, as a process of its own: `python stand.py PLAN`.

It prepares the machine, raises its walls and runs commands as a worker does. It prints one line of JSON when it is
ready, and one for each command that has ended, with what that did to the worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import msgspec

from attune.domain.definitions import Isolation
from attune.domain.retry import Ending
from attune.storage.assignments import Held
from attune.storage.output.execution_logs import Chunk
from attune.worker.guardian import Guardian
from attune.worker.isolation import confine
from attune.worker.machine import prepare_machine
from attune.worker.output import AttemptOutput
from attune.worker.plan import Bounds, WorkerPlan
from attune.worker.processes import Children, Marking, find_marked
from attune.worker.runners.protocol import Attempt, Stop, StopReason, Stream
from attune.worker.runners.script import ScriptPlan, ScriptRunner
from attune.worker.runners.shell import ShellLanguage
from tests.worker.attempts import startable

HELD = Held(execution_id=1, attempt=1, lease=uuid4())


class Told(msgspec.Struct, kw_only=True):
    """What the stand is to be, and what it is to run, one after the other or all at once."""

    home: str
    level: str
    commands: list[str]
    at_once: bool = False
    stop_after_seconds: float | None = None
    bounds: dict[str, int] = {}


@dataclass(slots=True)
class Counted:
    """What a worker does with output, but for the database: counted, cut, and its end kept."""

    count: int = 0
    tail: dict[Stream, bytes] = field(default_factory=lambda: dict.fromkeys(Stream, b""))
    stored: AttemptOutput = field(default_factory=lambda: AttemptOutput(HELD, forget))

    async def write(self, stream: Stream, content: bytes) -> None:
        self.count += len(content)
        self.tail[stream] = (self.tail[stream] + content)[-10_000:]
        await self.stored.write(stream, content)


async def forget(_: Sequence[Chunk]) -> None:
    """In place of the database."""


class Stand:
    """The parts of a worker that have to do with processes."""

    def __init__(self, told: Told, plan: WorkerPlan, scripts: ScriptPlan) -> None:
        self._told = told
        self._scripts = scripts
        self._runner = ScriptRunner(scripts, ShellLanguage(plan.packs))

    async def run(self, number: int, command: str) -> None:
        stop = Stop()
        if self._told.stop_after_seconds is not None:
            asyncio.get_running_loop().call_later(self._told.stop_after_seconds, stop.request, StopReason.CANCELLED)
        work = startable(execution_id=number, command=command, isolation=self._told.level)
        counted = Counted()
        launcher = self._scripts.launcher.pid
        ending = await self._runner.run(
            Attempt(work=work, stop=stop, worker="stand", check_clock=lambda: None), counted
        )
        self._say(number, ending, counted, launcher)

    def _say(self, number: int, ending: Ending, counted: Counted, launcher: int | None) -> None:
        say(
            number=number,
            outcome=str(ending.outcome),
            code=ending.failure.code if ending.failure else None,
            exit_code=ending.exit_code,
            printed=counted.count,
            stdout=counted.tail[Stream.STDOUT].decode(errors="replace"),
            stderr=counted.tail[Stream.STDERR].decode(errors="replace"),
            left=len(find_marked(self._scripts.marking.prefix)),
            launcher_kept=self._scripts.launcher.pid == launcher,
            memory_mb=peak_memory_mb(),
            directories=sum(1 for each in self._scripts.scratch.iterdir() if any(each.iterdir())),
        )


def peak_memory_mb() -> int:
    """Of this program alone: what `getrusage` tells includes the process that forked to start it."""
    [peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(peak.split()[1]) // 1024


def say(**values: object) -> None:
    sys.stdout.write(msgspec.json.encode(values).decode() + "\n")
    sys.stdout.flush()


async def main(told: Told) -> None:
    home = Path(told.home)
    plan = WorkerPlan(
        name="stand",
        home=home,
        packs=home / "packs",
        scratch=home / "run" / "work",
        capacity=8,
        heartbeat_seconds=1,
        shutdown_seconds=5,
        queue_ttl_ms=60_000,
        version="test",
        isolation=Isolation(told.level),
        bounds=Bounds(**told.bounds),
    )
    marking = Marking(home=home, worker="stand", instance=uuid4())
    await prepare_machine(plan, marking)
    children = Children()
    guardian = Guardian(marking, children)
    await guardian.start()
    launcher, confinement = await confine(plan, children)
    scripts = ScriptPlan(
        scratch=plan.scratch,
        marking=marking,
        children=children,
        launcher=launcher,
        confinement=confinement,
        grace_seconds=0.5,
    )
    say(pid=os.getpid(), launcher=launcher.pid, usual=confinement.shown, highest=confinement.highest)
    stand = Stand(told, plan, scripts)
    running = [stand.run(number, command) for number, command in enumerate(told.commands, start=1)]
    if told.at_once:
        await asyncio.gather(*running)
    else:
        for each in running:
            await each
    launcher.stop()
    await guardian.stop()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Told)))
