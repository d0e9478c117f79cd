"""What a worker tells the database about its attempts: output and endings, many in one transaction.

A report whose commit had no answer is sent again; the lease decides whether it still counts, and the history tells
whether it had arrived after all.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from attune.domain.execution import Failure
from attune.domain.json_values import Json
from attune.domain.retry import Ending, Large, Outcome
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.keep_artifact import keep_artifact
from attune.operations.start_executions import Claimant
from attune.runtime.batching import Batcher, Overloaded
from attune.runtime.clock import draw, jittered_backoff, monotonic
from attune.runtime.failpoints import afailpoint
from attune.storage import executions
from attune.storage.assignments import Held
from attune.storage.database import RETRYABLE, Database, may_work_later
from attune.storage.output import execution_logs
from attune.storage.output.artifacts import NewArtifact
from attune.storage.output.execution_logs import Chunk
from attune.storage.tx import Tx

# Long after any lease has run out; by then the database's answer could only be no.
REPORT_SECONDS_MAX: Final = 600.0
RETRY_FIRST_SECONDS: Final = 0.05
RETRY_CEILING_SECONDS: Final = 2.0


TakeNext = Callable[[Tx, Sequence[int]], Awaitable[None]]
"""Lets the next of the lines go that these executions were in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    report: Report
    chunks: tuple[Chunk, ...]
    # An earlier try may have been committed.
    again: bool = False
    # Only the ending itself: an earlier try to let the next in line go with it went wrong.
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    chunks: tuple[Chunk, ...]
    again: bool = False


class Reports:
    """The way back from a worker to the database."""

    def __init__(
        self,
        database: Database,
        claimant: Claimant,
        *,
        batch_max: int,
        take_next: TakeNext | None,
        tell: Callable[[Iterable[int]], None],
    ) -> None:
        self._database = database
        self._take_next = take_next
        self._tell = tell
        self._claimant = claimant
        self._actor = claimant.name
        self._log = structlog.get_logger()
        self._ends: Batcher[_End, bool] = Batcher(self._write_ends, batch_max=batch_max, shared_errors=RETRYABLE)
        self._outputs: Batcher[_Output, bool] = Batcher(
            self._write_outputs, batch_max=batch_max, shared_errors=RETRYABLE
        )

    async def write_chunks(self, chunks: Sequence[Chunk]) -> None:
        """Store output; returns when it is stored, or when that has become pointless."""
        item = _Output(chunks=tuple(chunks))
        deadline = monotonic() + REPORT_SECONDS_MAX
        failures = 0
        while monotonic() < deadline:
            try:
                await self._outputs.submit(item)
            except Overloaded:
                pass
            except RETRYABLE:
                item = replace(item, again=True)
            except Exception:  # noqa: BLE001  output that cannot be stored is no reason to end the action
                self._log.exception("output.unstorable", chunks=len(chunks))
                return
            else:
                return
            failures += 1
            await _pause(failures)

    async def keep_artifact(self, held: Held, large: Large) -> Json:
        """Store a large result in a transaction of its own; what stands in its place in the row, or None."""
        sha256 = await asyncio.to_thread(lambda: hashlib.sha256(large.content).hexdigest())
        size = len(large.content)
        new = NewArtifact(held=held, name=large.name, media_type=large.media_type, bytes=size, sha256=sha256)
        deadline = monotonic() + REPORT_SECONDS_MAX
        failures = 0
        while monotonic() < deadline:
            try:
                async with self._database.transaction() as tx:
                    artifact_id = await keep_artifact(tx, new, large.content)
                    await afailpoint("artifact.before_commit")
                await afailpoint("artifact.after_commit", unknown=ConnectionResetError)
            except RETRYABLE:
                failures += 1
                await _pause(failures)
            except Exception:  # noqa: BLE001  what cannot be stored must still end
                self._log.exception("artifact.unstorable", execution_id=held.execution_id)
                return None
            else:
                return {"artifact": {"id": artifact_id, "name": large.name, "bytes": size, "sha256": sha256}}
        return None

    async def finish(self, held: Held, ending: Ending, chunks: Sequence[Chunk]) -> bool:
        """Report an ending with the last of its output; False if the attempt was no longer this worker's."""
        item = _End(report=Report(held=held, worker_id=self._claimant.worker_id, ending=ending), chunks=tuple(chunks))
        deadline = monotonic() + REPORT_SECONDS_MAX
        failures = 0
        while monotonic() < deadline:
            try:
                return await self._ends.submit(item)
            except Exception as error:  # noqa: BLE001  what cannot be stored must still end
                item = self._correct(item, error)
            failures += 1
            await _pause(failures)
        return False

    def _correct(self, item: _End, error: Exception) -> _End:
        if isinstance(error, Overloaded):
            return item
        if may_work_later(error):
            return replace(item, again=True)
        report = item.report
        if self._take_next is not None and not item.alone:
            self._log.warning("attempt.reported_alone", execution_id=report.held.execution_id, exc_info=error)
            return replace(item, alone=True)
        self._log.error(
            "attempt.unreportable", execution_id=report.held.execution_id, attempt=report.held.attempt, exc_info=error
        )
        failure = Failure(code="unreportable", message=f"its result could not be stored: {error}", by=self._actor)
        ending = Ending(outcome=Outcome.FAILED, failure=failure)
        return replace(item, report=replace(report, ending=ending), chunks=())

    async def _write_ends(self, items: Sequence[_End]) -> list[bool]:
        await afailpoint("worker.finish.before_tx")
        async with self._database.transaction() as tx:
            arrived = await self._list_arrived(tx, items)
            new = [item for item in items if _key(item) not in arrived]
            await _store(tx, [chunk for item in new for chunk in item.chunks], again=any(i.again for i in new))
            take_next = None if any(item.alone for item in new) else self._take_next
            ids = [item.report.held.execution_id for item in new]
            answers = await finish_executions(tx, [item.report for item in new], actor=self._actor, draw=draw)
            if take_next is not None:
                await take_next(tx, ids)
                await afailpoint("worker.hand_on.before_commit")
        await afailpoint("worker.finish.after_commit", unknown=ConnectionResetError)
        self._tell(item.report.held.execution_id for item in items)
        told = {_key(item): answer for item, answer in zip(new, answers, strict=True)}
        return [told.get(_key(item), True) for item in items]

    async def _list_arrived(self, tx: Tx, items: Sequence[_End]) -> set[tuple[int, int]]:
        again = [_key(item) for item in items if item.again]
        return await executions.list_moved_by(tx, again, self._actor) if again else set()

    async def _write_outputs(self, items: Sequence[_Output]) -> list[bool]:
        async with self._database.transaction() as tx:
            await _store(tx, [chunk for item in items for chunk in item.chunks], again=any(i.again for i in items))
            await afailpoint("logs.chunks.before_commit")
        await afailpoint("logs.chunks.after_commit", unknown=ConnectionResetError)
        self._tell(chunk.held.execution_id for item in items for chunk in item.chunks)
        return [True] * len(items)


def _key(item: _End) -> tuple[int, int]:
    return item.report.held.execution_id, item.report.held.attempt


async def _store(tx: Tx, chunks: Sequence[Chunk], *, again: bool) -> None:
    if again and chunks:
        written = await execution_logs.list_written(tx, chunks)
        chunks = [chunk for chunk in chunks if (chunk.held.execution_id, chunk.held.attempt, chunk.seq) not in written]
    if chunks:
        await execution_logs.insert_many(tx, chunks)


async def _pause(failures: int) -> None:
    await asyncio.sleep(
        jittered_backoff(
            failures, first_seconds=RETRY_FIRST_SECONDS, ceiling_seconds=RETRY_CEILING_SECONDS, drawn=draw()
        )
    )
