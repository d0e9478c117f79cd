"""A database in memory, as far as races go: transactions see what is committed and their own writes, and lock rows.

It behaves like READ COMMITTED: every look sees the newest commits, a lock waits for its holder and a row is looked at
again after the wait. Rows are never changed in place, so a write without the row's lock is noticed at the commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar, cast

import asyncpg

from attune.domain.admission import LogRow
from attune.domain.execution import Status
from attune.storage.tx import Tx
from tests.simulation.whole.rows import Row
from tests.simulation.whole.virtual import Ask, Loop, Process, Task, Waker

R = TypeVar("R", bound=Row)
Key = tuple[str, int]

# As in `HOT_SETTINGS`.
LOCK_SECONDS = 2.0
IDLE_SECONDS = 5.0

UPDATE = "update"
NO_KEY_UPDATE = "no key update"
KEY_SHARE = "key share"
_CONFLICTS = {
    UPDATE: frozenset({UPDATE, NO_KEY_UPDATE, KEY_SHARE}),
    NO_KEY_UPDATE: frozenset({UPDATE, NO_KEY_UPDATE}),
    KEY_SHARE: frozenset({UPDATE}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A row of an execution's history."""

    execution_id: int
    before: Status | None
    after: Status
    attempt: int
    actor: str
    reason: str
    code: str | None


@dataclass(slots=True)
class _Lock:
    holders: dict[Session, str] = field(default_factory=dict)
    waiters: list[tuple[Session, str, Waker]] = field(default_factory=list)

    def stands_in_the_way(self, session: Session, mode: str) -> list[Session]:
        if not self.holders:
            return []
        conflicts = _CONFLICTS[mode]
        return [other for other, held in self.holders.items() if other is not session and held in conflicts]


@dataclass(kw_only=True)
class Store:
    """Tables, locks, and everybody who has a transaction open."""

    loop: Loop
    dice: Random
    # How often a transaction lets others go first at a lock, and before and after its commit.
    interleaving: float = 0.0
    tables: dict[str, dict[int, Any]] = field(default_factory=lambda: defaultdict(dict))
    locks: dict[Key, _Lock] = field(default_factory=dict)
    sessions: dict[Session, None] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    # The database's clock against ours.
    clock_offset: float = 0.0
    started_at: float = -1000.0
    down: bool = False
    # A script that holds a transaction at a certain point: it is asked at each, and keeps the waker.
    hold: Callable[[Session, str], Callable[[Waker], None] | None] | None = None
    on_commit: Callable[[Session], None] = lambda _session: None
    # The same for one that wrote nothing.
    on_read: Callable[[Session], None] = lambda _session: None
    on_trouble: Callable[[str, str], None] = lambda _name, _text: None

    @property
    def clock(self) -> float:
        return self.loop.now + self.clock_offset

    def table(self, name: str) -> dict[int, Any]:
        return self.tables[name]

    def number(self, of: str) -> int:
        """The next number of a sequence; like those of PostgreSQL it is not given back."""
        self.numbers[of] = self.numbers.get(of, 0) + 1
        return self.numbers[of]

    def break_off(self, wanted: Callable[[Session], bool]) -> None:
        """Connections are lost: the server rolls back, and the client hears of it when it next asks."""
        for session in [session for session in self.sessions if wanted(session)]:
            session.broken = True
            session.roll_back()

    def restart(self) -> None:
        self.break_off(lambda _: True)
        self.started_at = self.clock


class Session:
    """One transaction on one connection."""

    def __init__(self, store: Store, process: Process) -> None:
        self.store = store
        self.process = process
        self.now = store.clock
        self.broken = False
        self.over = False
        self.committed = False
        self.waits_for: _Lock | None = None
        # What this transaction wrote, and what stood there before.
        self.written: dict[Key, Any] = {}
        self.bases: dict[Key, Any] = {}
        self._tables: dict[str, set[int]] = {}
        self.history: list[Move] = []
        self.log: list[tuple[int, LogRow]] = []
        # Messages whose effect, or whose place in the outbox, commits with this.
        self.settled: set[int] = set()
        self._locked: dict[Key, None] = {}
        store.sessions[self] = None

    # Reading

    def get(self, table: str, id_: int, kind: type[R]) -> R | None:  # noqa: ARG002 — the kind is for the reader and mypy
        key = (table, id_)
        if key in self.written:
            return cast("R | None", self.written[key])
        return cast("R | None", self.store.tables[table].get(id_))

    def rows(self, table: str, kind: type[R]) -> list[R]:
        """Every row, in no order that means anything."""
        mine = self._tables.get(table)
        if not mine:
            return list(self.store.tables[table].values())
        found = [self.get(table, id_, kind) for id_ in sorted(mine | self.store.tables[table].keys())]
        return [row for row in found if row is not None]

    # Writing

    def change(self, table: str, row: R) -> R:
        """The same row, to be written to: the transaction's own copy."""
        key = (table, cast("Any", row).id)
        if self.written.get(key) is row:
            return row
        mine = object.__new__(type(row))
        mine.__dict__.update(row.__dict__)
        self._put(key, mine)
        return mine

    def insert(self, table: str, row: R) -> None:
        self._put((table, cast("Any", row).id), row)

    def delete(self, table: str, id_: int) -> None:
        self._put((table, id_), None)

    def _put(self, key: Key, row: object) -> None:
        if key not in self.bases:
            self.bases[key] = self.store.table(key[0]).get(key[1])
            self._tables.setdefault(key[0], set()).add(key[1])
        self.written[key] = row

    # Locking

    def lock_at_once(self, table: str, id_: int, mode: str = UPDATE) -> None:
        """As NOWAIT does: it is there, or it is refused."""
        if not self.try_lock(table, id_, mode):
            raise asyncpg.LockNotAvailableError("could not obtain lock")

    def try_lock(self, table: str, id_: int, mode: str = UPDATE) -> bool:
        """As SKIP LOCKED does: False if somebody else has it."""
        lock = self.store.locks.setdefault((table, id_), _Lock())
        if lock.stands_in_the_way(self, mode):
            return False
        self._take(lock, (table, id_), mode)
        return True

    async def lock(self, table: str, id_: int, mode: str = UPDATE) -> None:
        if self.may_pause:
            await self.pause(f"lock {table}")
        key = (table, id_)
        lock = self.store.locks.setdefault(key, _Lock())
        while lock.stands_in_the_way(self, mode):
            self._refuse_deadlock(lock, mode, key)
            self.waits_for = lock
            try:
                await Ask(lambda task: self._wait(task, lock, mode))
            finally:
                self.waits_for = None
                lock.waiters = [waiter for waiter in lock.waiters if waiter[0] is not self]
            self.check()
        self._take(lock, key, mode)

    def _take(self, lock: _Lock, key: Key, mode: str) -> None:
        if lock.holders.get(self) != UPDATE:
            lock.holders[self] = mode
        self._locked[key] = None

    def _wait(self, task: Task, lock: _Lock, mode: str) -> None:
        wake = task.waker()
        lock.waiters.append((self, mode, wake))
        wake(LOCK_SECONDS, asyncpg.LockNotAvailableError("lock timeout"))

    def _refuse_deadlock(self, lock: _Lock, mode: str, key: Key) -> None:
        seen: set[Session] = set()
        todo = lock.stands_in_the_way(self, mode)
        while todo:
            other = todo.pop()
            if other is self:
                told = "; ".join(each.describe() for each in (self, *seen))
                self.store.on_trouble("locks_in_one_order", f"in a circle at {key}: {told}")
                raise asyncpg.DeadlockDetectedError("deadlock detected")
            if other not in seen and other.waits_for is not None:
                seen.add(other)
                todo.extend(holder for holder in other.waits_for.holders if holder is not other)

    def describe(self) -> str:
        return f"{self.process.name} holds {list(self._locked)} and writes {list(self.written)}"

    @property
    def may_pause(self) -> bool:
        """Asked first, because mostly nobody does and an await is dear."""
        return self.store.hold is not None or bool(self.store.interleaving)

    async def pause(self, where: str) -> None:
        """Let others go first, now and then, or as long as a script wants."""
        store = self.store
        if store.hold is not None and (keep := store.hold(self, where)) is not None:
            await Ask(lambda task: keep(task.waker()))
            self.check()
        elif store.interleaving and store.dice.random() < store.interleaving:
            await Ask(lambda task: task.wake(store.dice.random() * 0.05))
            self.check()

    def check(self) -> None:
        if self.broken and not self.committed:
            raise ConnectionResetError("connection was closed in the middle of operation")

    # Ending

    def commit(self) -> None:
        tables = self.store.tables
        if not self.written:
            self.over = self.committed = True
            self.store.on_read(self)
            self._release()
            return
        for (table, id_), base in self.bases.items():
            if tables[table].get(id_) is not base:
                self.store.on_trouble("written_under_a_lock", f"{table} {id_} was changed by two at once")
        for (table, id_), row in self.written.items():
            if row is None:
                tables[table].pop(id_, None)
            else:
                tables[table][id_] = row
        self.over = self.committed = True
        self.store.on_commit(self)
        self._release()

    def roll_back(self) -> None:
        if not self.over:
            self.over = True
            self._release()

    def _release(self) -> None:
        self.store.sessions.pop(self, None)
        for key in self._locked:
            lock = self.store.locks[key]
            lock.holders.pop(self, None)
            for _, _, wake in lock.waiters:
                wake()
            if not lock.holders and not lock.waiters:
                del self.store.locks[key]
        self._locked.clear()


def session_of(tx: Tx) -> Session:
    return cast("Session", tx.connection)
