"""Runs claimed attempts, each from its claim to its report."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from attune.domain.retry import Ending
from attune.runtime.clock import monotonic
from attune.runtime.failpoints import afailpoint, failpoint
from attune.runtime.metrics import Metrics
from attune.storage.executions import Startable
from attune.worker.attempts import Attempts, Entry, Stage
from attune.worker.output import AttemptOutput
from attune.worker.reports import Reports
from attune.worker.runners.protocol import Attempt, Runner, StopReason, TooLate, failed, stopped

# A timer further ahead than this is not worth setting; the deadline sweep ends what runs for weeks.
TIMEOUT_SECONDS_MAX: Final = 30 * 86_400.0


class Performer:
    """Owns one task for each attempt that runs here."""

    def __init__(
        self,
        *,
        worker: str,
        attempts: Attempts,
        runners: Mapping[str, Runner],
        reports: Reports,
        metrics: Metrics,
        slot_freed: Callable[[], None],
    ) -> None:
        self._worker = worker
        self._attempts = attempts
        self._runners = runners
        self._reports = reports
        self._metrics = metrics
        self._slot_freed = slot_freed
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    def begin(self, entry: Entry) -> None:
        """Run an attempt that this process has claimed and nobody has begun."""
        if entry.started is not None and entry.started.startable.tries == 1:
            self._metrics.request_to_running_seconds.observe(entry.started.startable.waited_seconds)
        task = asyncio.create_task(self._perform(entry), name="attempt")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait until nothing runs; False if something still does then."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout_seconds)
        return not self._tasks

    def abandon(self) -> None:
        """Leave at once: whatever runs is killed, and nothing more is written."""
        for entry in self._attempts.leased():
            entry.stop.request(StopReason.FENCED)
        for task in self._tasks:
            task.cancel()

    async def _perform(self, entry: Entry) -> None:
        assert entry.started is not None  # noqa: S101  only claimed attempts come here
        output = AttemptOutput(entry.held, self._reports.write_chunks)
        try:
            ending = await self._run(entry, entry.started.startable, output)
            # The slot is free as soon as nothing runs; the report may take its time.
            self._attempts.move(entry, Stage.ENDING)
            self._slot_freed()
            if entry.stop.reason is StopReason.FENCED:
                return
            if not await self._reports.finish(entry.held, ending, await output.close()):
                self._note_fenced(entry)
        finally:
            output.discard()
            self._attempts.drop(entry)
            self._slot_freed()

    async def _run(self, entry: Entry, work: Startable, output: AttemptOutput) -> Ending:
        attempt = Attempt(work=work, stop=entry.stop, worker=self._worker, check_clock=_clock_of(entry))
        runner = self._runners.get(work.runner)
        if runner is None:
            return failed(attempt, "missing_runner", f"this worker cannot run {work.runner} actions")
        await afailpoint("worker.run.before_start")
        failpoint("worker.run.blocked")  # Blocks everything, as a pause of the whole process does.
        timer = asyncio.get_running_loop().call_later(
            min(work.timeout_seconds, TIMEOUT_SECONDS_MAX), entry.stop.request, StopReason.TIMEOUT
        )
        try:
            return await runner.run(attempt, output)
        except TooLate:
            return stopped(attempt, StopReason.LEASE_LOST)
        except Exception as error:  # noqa: BLE001  one attempt's trouble must not end the others
            self._log.exception("attempt.crashed", execution_id=work.execution_id, attempt=work.attempt)
            return failed(attempt, "internal_error", f"the worker failed to run it: {type(error).__name__}: {error}")
        finally:
            timer.cancel()

    def _note_fenced(self, entry: Entry) -> None:
        self._metrics.fenced_writes.inc()
        self._log.warning("attempt.fenced", execution_id=entry.key[0], attempt=entry.key[1], at="report")


def _clock_of(entry: Entry) -> Callable[[], None]:
    def check() -> None:
        """A process that was paused between its claim and now must not start what another may have been given."""
        if monotonic() >= entry.good_until:
            raise TooLate

    return check
