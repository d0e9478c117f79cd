"""Sends numbered requests one after the other, waits for their end, and reads what happened."""

import asyncio
import time
from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from attune.cli.bench.judge import NUMBER
from attune.cli.bench.wire import WireClient
from attune.client import AsyncAttuneClient, Refused, TimedOut, Unreachable, calls
from attune.client.calls import Call
from attune.client.models import Admission, Execution, Line

T = TypeVar("T")
Sender = AsyncAttuneClient | WireClient

PAGE: Final = 1000
POLL_SECONDS: Final = 0.05
# Slower than anything worth measuring; what has not ended by then counts as lost.
PATIENCE_SECONDS: Final = 120.0
PER_SECOND_MIN: Final = 20
UNAVAILABLE: Final = 503
REFUSALS_MAX: Final = 600  # Half a minute of an API that cannot keep up.


class BenchClient:
    """One client, one trace."""

    def __init__(
        self, attune: AsyncAttuneClient | WireClient, trace_tag: str, *, batch: int, keyed: bool = False
    ) -> None:
        """With keys, requests may be repeated that were perhaps accepted unheard."""
        self.trace_tag = trace_tag
        self.batch = batch
        self._attune = attune
        self._keyed = keyed
        # Ids in the order of the answers.
        self.accepted: list[int] = []

    async def send(self, refs: Sequence[str], count: int) -> None:
        """Ask for `count` more executions, the actions in turn; a request waits for the answer to the one before."""
        end = len(self.accepted) + count
        while (begin := len(self.accepted)) < end:
            self.accepted += await self.request(refs, range(begin, min(begin + self.batch, end)))

    async def request(self, refs: Sequence[str], numbers: range) -> list[int]:
        """Ask for the executions with these numbers; their ids."""
        wanted: list[dict[str, object]] = [
            {"action_ref": refs[number % len(refs)], "parameters": {NUMBER: number}, "trace_tag": self.trace_tag}
            for number in numbers
        ]
        key = f"{self.trace_tag}/{numbers.start}".replace(" ", "-") if self._keyed else None
        return [each.id for each in (await self._ask(calls.request_executions(wanted, idempotency_key=key))).executions]

    async def _ask(self, call: Call[T]) -> T:
        """The answer; while the platform says that it may work later, ask again."""
        for _ in range(REFUSALS_MAX):
            try:
                return (await self._attune.send(call)).value
            except Refused as refusal:
                if refusal.status != UNAVAILABLE:
                    raise
            except (Unreachable, TimedOut):
                if not self._keyed:
                    raise
            await asyncio.sleep(POLL_SECONDS)
        raise TimeoutError("the API refuses requests for half a minute")

    async def wait_for_last(self) -> None:
        """Until the one accepted last has ended, or the patience has."""
        deadline = time.monotonic() + PATIENCE_SECONDS + len(self.accepted) / PER_SECOND_MIN
        while time.monotonic() < deadline:
            if await self.has_ended(self.accepted[-1]):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def has_ended(self, execution_id: int) -> bool:
        return (await self._ask(calls.get_execution(execution_id))).status.ended

    async def read_ended(self) -> list[Execution]:
        """Every execution of the trace, once all have ended or the patience has."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = await self.read(len(self.accepted))
            if all(each.status.ended for each in found) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(POLL_SECONDS)

    async def read(self, count: int) -> list[Execution]:
        """At least the first `count` executions of the trace, and all of the last page read."""
        found: list[Execution] = []
        cursor: str | None = None
        while True:
            page = await self._ask(
                calls.list_executions(trace_tag=self.trace_tag, sort="id", limit=PAGE, cursor=cursor)
            )
            found += page.items
            cursor = page.next_cursor
            if cursor is None or len(found) > count:
                return found

    async def find_line(self, ref: str) -> Line:
        """The only line of an action."""
        (line,) = (await self._ask(calls.list_lines(action_ref=ref))).items
        return line

    async def read_admissions(self, line_id: int, *, after: int = 0) -> list[Admission]:
        """Everything a line has logged."""
        rows: list[Admission] = []
        while True:
            page = (await self._ask(calls.list_admissions(line_id, after=after, limit=PAGE))).items
            if not page:
                return rows
            rows += page
            after = page[-1].n

    async def pause(self, line_id: int) -> None:
        await self._attune.send(calls.pause_line(line_id))

    async def resume(self, line_id: int) -> None:
        await self._attune.send(calls.resume_line(line_id))


def only(admissions: Collection[Admission], ids: Collection[int]) -> list[Admission]:
    """What was logged about some executions."""
    return [row for row in admissions if row.execution_id in ids]
