"""What really runs: the ledger of scripts, which no database can talk out of having been started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attune.domain.retry import Ending
from attune.storage.executions import Startable
from attune.worker.runners.protocol import AT_ONCE, Attempt, Output, StopReason, failed, stopped, succeeded
from tests.simulation.whole.virtual import Loop, Process, VirtualEvent, sleep

# Between asking and killing.
GRACE_SECONDS = 5.0
# A parent looks for the ends of its children this often, and no longer than this: they may find no room beside it.
LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 10.0


@dataclass(eq=False, kw_only=True)
class Script:
    """One start of a script."""

    ledger: Ledger
    execution_id: int
    attempt: int
    process: Process
    on_end: Callable[[], None]
    stubborn: bool
    started_at: float
    ended_at: float | None = None
    exit_code: int = 0
    # Why its worker may be excused if it outlives its lease.
    excuse: str = ""

    @property
    def alive(self) -> bool:
        return self.ended_at is None

    def stop(self, reason: StopReason) -> None:
        if reason in AT_ONCE or not self.stubborn:
            self.end(exit_code=-9)
        else:
            self.ledger.loop.at(GRACE_SECONDS, lambda: self.end(exit_code=-9))

    def end(self, *, exit_code: int) -> None:
        if self.alive:
            self.ended_at = self.ledger.loop.now
            self.exit_code = exit_code
            self.on_end()


@dataclass(kw_only=True)
class Ledger:
    """Every start there ever was, in order."""

    loop: Loop
    scripts: list[Script] = field(default_factory=list)
    on_spawn: Callable[[Script], None] = lambda _script: None
    # Requests that a running script makes itself; answers whether all of its children have ended.
    ask_for_children: Callable[[Script, int], Callable[[], bool]] = lambda _script, _number: lambda: True

    def spawn(self, work: Startable, *, worker: Any, on_end: Callable[[], None]) -> Script:  # noqa: ANN401 — a SimulatedWorker
        how: Any = work.parameters
        script = Script(
            ledger=self,
            execution_id=work.execution_id,
            attempt=work.attempt,
            process=worker.process,
            on_end=on_end,
            stubborn=bool(how.get("stubborn")),
            started_at=self.loop.now,
        )
        self.scripts.append(script)
        self.on_spawn(script)
        exits = how.get("exits") or [0]
        exit_code = exits[min(work.tries, len(exits)) - 1]
        done = self.ask_for_children(script, how["children"]) if how.get("children") else lambda: True
        self._end_when(script, done, float(how.get("seconds", 1.0)), exit_code)
        return script

    def _end_when(self, script: Script, done: Callable[[], bool], seconds: float, exit_code: int) -> None:
        def look() -> None:
            if not script.alive:
                return
            if done() or self.loop.now > script.started_at + seconds + PATIENCE_SECONDS:
                script.end(exit_code=exit_code)
            else:
                self.loop.at(LOOK_SECONDS, look)

        self.loop.at(seconds, look)

    def living(self, execution_id: int) -> list[Script]:
        return [each for each in self.scripts if each.alive and each.execution_id == execution_id]

    def kill_with(self, process: Process) -> None:
        """Scripts die with their worker."""
        for script in self.scripts:
            if script.process is process and script.alive:
                script.end(exit_code=-9)

    def excuse(self, process: Process, why: str) -> None:
        for script in self.scripts:
            if script.process is process and script.alive:
                script.excuse = why

    def finished_well(self, execution_id: int, attempt: int) -> bool:
        return any(
            each.execution_id == execution_id and each.attempt == attempt and not each.alive and each.exit_code == 0
            for each in self.scripts
        )


class ScriptRunner:
    """In the place of a runner: scripts that live in the ledger and can be killed."""

    def __init__(self, worker: Any) -> None:  # noqa: ANN401 — a SimulatedWorker
        self._worker = worker

    async def run(self, attempt: Attempt, output: Output) -> Ending:  # noqa: ARG002 — nothing is printed
        await sleep(self._worker.around.dice.random() * 0.02)
        attempt.check_clock()
        process = self._worker.process
        over = VirtualEvent()
        script = self._worker.around.ledger.spawn(
            attempt.work, worker=self._worker, on_end=lambda: process.later(0.0, over.set)
        )
        attempt.stop.listen(script.stop)
        await over.wait()
        attempt.stop.forget_listener()
        if attempt.stop.reason is not None:
            return stopped(attempt, attempt.stop.reason)
        if script.exit_code == 0:
            return succeeded({"attempt": attempt.work.attempt}, exit_code=0)
        return failed(attempt, "exit_code", f"exit code {script.exit_code}", exit_code=script.exit_code)
