"""The door for executions: requests that arrive together commit together, and none enters a house that is full."""

import asyncio
from collections.abc import Sequence
from typing import Final

from attune.api.parts import ApiLimits
from attune.domain.errors import AttuneError, Unavailable
from attune.operations.accept_executions import accept_executions
from attune.operations.acceptance import Acceptance, Submission, Wish
from attune.operations.prepare_executions import prepare_executions
from attune.runtime.batching import Batcher
from attune.runtime.failpoints import afailpoint
from attune.runtime.vault import Vault
from attune.storage import outbox
from attune.storage.births import NewExecution
from attune.storage.database import Database, may_work_later
from attune.storage.failures import outcome_is_unknown

MEASURE_SECONDS: Final = 1.0
# A request for more executions than this has a transaction of its own: nobody else should wait for it.
TOGETHER_MAX: Final = 20
# Requests whose actions are looked up by one statement; what arrives beyond it forms the next.
LOOKUPS_MAX: Final = 100


class Preparer:
    """Checks what is asked for, against actions that are looked up together."""

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault
        self._batcher: Batcher[Wish, list[NewExecution]] = Batcher(self._prepare, batch_max=LOOKUPS_MAX)

    async def prepare(self, wish: Wish) -> list[NewExecution]:
        """What is to be accepted; raises what is wrong with it."""
        return await self._batcher.submit(wish)

    async def _prepare(self, wishes: Sequence[Wish]) -> list[list[NewExecution] | AttuneError]:
        async with self._database.reading() as tx:
            return await prepare_executions(tx, wishes, vault=self._vault)


class Door:
    """Accepts executions."""

    def __init__(self, database: Database, limits: ApiLimits) -> None:
        self._database = database
        self._limits = limits
        self._batcher: Batcher[Submission, Acceptance] = Batcher(
            self._accept, batch_max=limits.batch_max, shared_errors=(Unavailable,)
        )

    async def accept(self, submission: Submission) -> Acceptance:
        """Accept one request with whatever else is waiting at this moment, unless it is many in itself."""
        if len(submission.prepared) > TOGETHER_MAX:
            return await self._accept_alone(submission)
        return await self._batcher.submit(submission)

    async def _accept_alone(self, submission: Submission) -> Acceptance:
        # Shielded: a client that goes away must not leave it half done.
        (outcome,) = await asyncio.shield(asyncio.ensure_future(self._accept([submission])))
        if isinstance(outcome, AttuneError):
            raise outcome
        return outcome

    async def close(self) -> None:
        """Finish what was taken, take nothing more."""
        await self._batcher.close()

    async def _accept(self, submissions: Sequence[Submission]) -> list[Acceptance | AttuneError]:
        await afailpoint("api.accept.before_tx")
        try:
            async with self._database.transaction() as tx:
                answers = await accept_executions(
                    tx,
                    submissions,
                    max_queue_length=self._limits.max_queue_length,
                    no_worker_grace_seconds=self._limits.no_worker_grace_seconds,
                )
            await afailpoint("api.accept.after_commit", unknown=ConnectionResetError)
        except Exception as error:
            if outcome_is_unknown(error):
                # Trying again by ourselves could accept everything twice.
                message = "the database was lost while accepting; repeat with the same Idempotency-Key to be sure"
                raise Unavailable(message, code="outcome_unknown") from error
            raise
        return answers


class Pressure:
    """Whether so many messages wait to be carried that taking more would only make it worse."""

    def __init__(self, database: Database, limits: ApiLimits) -> None:
        self._database = database
        self._limits = limits
        self._refusing = False
        self._asked = asyncio.Event()

    def refuse_if_high(self) -> None:
        """Refuse new work while the outbox is overfull; looks at the last measurement only."""
        self._asked.set()
        if self._refusing:
            raise Unavailable("too many messages are waiting to be carried; try again later", code="outbox_full")

    async def watch(self) -> None:
        """Measure once a second while anybody asks; an idle API measures nothing."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await self._measure()
            await asyncio.sleep(MEASURE_SECONDS)

    async def _measure(self) -> None:
        try:
            async with self._database.reading() as tx:
                rows, _ = await outbox.measure(tx, limit=self._limits.refuse_above + 1)
        except Exception as error:
            if not may_work_later(error):
                raise
            return
        threshold = self._limits.accept_below if self._refusing else self._limits.refuse_above
        self._refusing = rows > threshold
        if self._refusing:
            self._asked.set()  # Nobody gets in, so nobody else would ask for the next look.
