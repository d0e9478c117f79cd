"""Runs claimed attempts, each from its claim to its report."""

import asyncio
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from attune.domain.execution import Failure
from attune.domain.retry import Ending, Outcome
from attune.domain.secrecy.forms import LENGTH_MIN
from attune.domain.secrecy.masking import Masker
from attune.runtime.clock import monotonic
from attune.runtime.failpoints import afailpoint, failpoint
from attune.worker.attempts import Attempts, Entry, Stage
from attune.worker.output import AttemptOutput
from attune.worker.plan import WorkerParts
from attune.worker.reports import Reports
from attune.worker.runners.protocol import Attempt, Runner, StopReason, Stream, TooLate, failed, stopped
from attune.worker.secrecy import Unopened, confide, mask_ending, mask_large

# A timer further ahead than this is not worth setting; the deadline sweep ends what runs for weeks.
TIMEOUT_SECONDS_MAX: Final = 30 * 86_400.0


class Performer:
    """Owns one task for each attempt that runs here."""

    def __init__(
        self,
        *,
        parts: WorkerParts,
        attempts: Attempts,
        runners: Mapping[str, Runner],
        reports: Reports,
        slot_freed: Callable[[], None],
    ) -> None:
        self._plan = parts.plan
        self._vault = parts.vault
        self._attempts = attempts
        self._runners = runners
        self._reports = reports
        self._metrics = parts.metrics
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
        output = AttemptOutput(entry.held, self._reports.write_chunks)
        try:
            ending = await self._end(entry, output)
            await afailpoint("worker.ended.before_report")
            # The slot is free as soon as nothing runs; the report may take its time.
            self._attempts.move(entry, Stage.ENDING)
            self._slot_freed()
            if entry.stop.reason is StopReason.FENCED:
                return
            ending = await self._keep_large(entry, ending, output.masker)
            if not await self._reports.finish(entry.held, ending, await output.close()):
                self._note_fenced(entry)
        finally:
            output.discard()
            self._attempts.drop(entry)
            self._slot_freed()

    async def _keep_large(self, entry: Entry, ending: Ending, masker: Masker) -> Ending:
        """Store a result that no row could hold; the ending then says where it is."""
        if ending.large is None:
            return ending
        large = await asyncio.to_thread(mask_large, masker, ending.large)
        result = await self._reports.keep_artifact(entry.held, large)
        if result is None:
            failure = Failure(code="unreportable", message="its large result could not be stored", by=self._plan.name)
            return Ending(outcome=Outcome.FAILED, failure=failure, exit_code=ending.exit_code)
        return replace(ending, result=result, large=None)

    async def _end(self, entry: Entry, output: AttemptOutput) -> Ending:
        """Run the attempt to its end; what comes back may be written down."""
        assert entry.started is not None  # noqa: S101  only claimed attempts come here
        work = entry.started.startable
        attempt = Attempt(
            work=work,
            stop=entry.stop,
            worker=self._plan.name,
            check_clock=_clock_of(entry),
            artifact_bytes_max=self._plan.artifact_bytes_max,
        )
        try:
            confided = confide(self._vault, work, entry.held)
        except Unopened as error:
            self._log.error("attempt.unopened", execution_id=work.execution_id, code=error.code, reason=str(error))
            return failed(attempt, error.code, str(error))
        output.masker = confided.masker
        attempt = replace(attempt, work=confided.work, token=confided.token, masker=confided.masker)
        for pointer in confided.unmasked:
            warning = f"[the secret {pointer} has fewer than {LENGTH_MIN} characters: it is not masked]\n"
            await output.write(Stream.STDERR, warning.encode())
        return mask_ending(confided.masker, await self._run(attempt, output))

    async def _run(self, attempt: Attempt, output: AttemptOutput) -> Ending:
        work, stop = attempt.work, attempt.stop
        runner = self._runners.get(work.runner)
        if runner is None:
            return failed(attempt, "missing_runner", f"this worker cannot run {work.runner} actions")
        await afailpoint("worker.run.before_start")
        failpoint("worker.run.blocked")  # Blocks everything, as a pause of the whole process does.
        timer = asyncio.get_running_loop().call_later(
            min(work.timeout_seconds, TIMEOUT_SECONDS_MAX), stop.request, StopReason.TIMEOUT
        )
        try:
            return await runner.run(attempt, output)
        except TooLate:
            return stopped(attempt, StopReason.LEASE_LOST)
        except Exception as error:  # noqa: BLE001  one attempt's trouble must not end the others
            # As a text, because the error may quote what the attempt may not show.
            trace = attempt.masker.mask_text(traceback.format_exc())
            self._log.error("attempt.crashed", execution_id=work.execution_id, attempt=work.attempt, trace=trace)
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
