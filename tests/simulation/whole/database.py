"""Connections to the store, with the ends a transaction can have: done, rolled back, or without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from attune.domain.messages import Message
from attune.runtime.clock import monotonic
from attune.storage import outbox
from attune.storage.tx import Commit, Tx
from tests.simulation.whole.store import IDLE_SECONDS, Session, Store
from tests.simulation.whole.virtual import Process, sleep

# One message carries few items, so that batches of several messages are met with few executions.
ITEMS_MAX = 3
REFUSED_SECONDS = 0.2


class StoreDatabase:
    """The database as one process sees it; in the place of `storage.database.Database`."""

    def __init__(self, store: Store, process: Process) -> None:
        self._store = store
        self._process = process
        # How often an answer to a commit gets lost, done or not.
        self.lost_answers = 0.0

    async def after_commit(self, messages: Sequence[Message]) -> None:
        """Tell; replaced by the transport."""

    def transaction(self, *, announces: bool = True) -> _Transaction:
        """As the original: what is announced commits with the rest."""
        return _Transaction(self, announces=announces)

    def commit(self, session: Session) -> None:
        dice = self._store.dice
        if self.lost_answers and dice.random() < self.lost_answers:
            if dice.random() < 0.5:
                session.commit()
            raise ConnectionResetError("no answer to the commit")
        session.commit()

    async def connect(self) -> Session:
        if self._process.cut or self._store.down:
            await sleep(REFUSED_SECONDS)
            raise ConnectionRefusedError("the database does not answer")
        return Session(self._store, self._process)

    async def answers(self) -> bool:
        return not (self._process.cut or self._store.down)


class _Transaction:
    """One transaction, and how it ends."""

    __slots__ = ("_announces", "_database", "_session", "_tx")

    def __init__(self, database: StoreDatabase, *, announces: bool) -> None:
        self._database = database
        self._announces = announces

    async def __aenter__(self) -> Tx:
        began_at = monotonic()
        self._session = await self._database.connect()
        self._tx = Tx.on(cast("Any", self._session), began_at=began_at, items_max=ITEMS_MAX)
        return self._tx

    async def __aexit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        session, tx = self._session, self._tx
        commit = Commit.ROLLED_BACK
        messages: list[Message] = []
        try:
            if error is None:
                session.check()
                if announcements := tx.announcements():
                    messages = await outbox.insert(tx, announcements)
                assert self._announces or not messages
                if session.may_pause:
                    await session.pause("before commit")
                commit = Commit.UNKNOWN
                self._database.commit(session)
                commit = Commit.DONE
        finally:
            session.roll_back()
            tx.end(commit)
        if error is None:
            # A process may die between a commit and whatever it does next.
            if session.may_pause:
                await session.pause("after commit")
            if messages:
                await self._database.after_commit(messages)


class StoreConnection:
    """In the place of `storage.own_connection.OwnConnection`."""

    def __init__(self, database: StoreDatabase) -> None:
        self._database = database

    def transaction(self, *, timeout_seconds: float) -> _Transaction:  # noqa: ARG002 — locks have their own
        return self._database.transaction(announces=False)


def give_up_idle(store: Store, process: Process) -> None:
    """A stopped process keeps its locks only until the server loses patience."""

    def lose_patience() -> None:
        if process.stopped:
            store.break_off(lambda session: session.process is process)

    store.loop.at(IDLE_SECONDS, lose_patience)
