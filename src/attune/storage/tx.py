"""One transaction: reading, writing, and collecting what it will announce."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import asyncpg

from attune.domain.messages import ITEMS_MAX, Announcement, Item, MessageType
from attune.runtime.clock import monotonic

Row = asyncpg.Record
# How an execution ended: the name of its action, its status, and its code if it failed.
End = tuple[str, str, str | None]

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    # The driver's classes are generic for the type checker only.
    PlainConnection: TypeAlias = asyncpg.Connection[Row]
    Connection: TypeAlias = PoolConnectionProxy[Row] | PlainConnection
    Pool: TypeAlias = asyncpg.Pool[Row]
else:
    PlainConnection = Connection = asyncpg.Connection
    Pool = asyncpg.Pool


class Commit(Enum):
    """What is known of a transaction's end."""

    DONE = auto()
    ROLLED_BACK = auto()
    # The connection was lost, or the waiting task cancelled, while the server was asked to commit.
    UNKNOWN = auto()


@dataclass(slots=True)
class Tx:
    """One transaction: its connection, and what it will announce when it commits."""

    connection: Connection
    _items: dict[tuple[str, MessageType, float], list[Item]]
    _broadcasts: dict[str, None]
    # By this machine's monotonic clock, and before the database's `now()` of this transaction.
    began_at: float
    _at_end: list[Callable[[Commit], None]]
    # How many executions this transaction ends, for those who count.
    ended: Counter[End]
    # One message carries at most this many items.
    _items_max: int

    @classmethod
    def on(cls, connection: Connection, *, began_at: float | None = None, items_max: int = ITEMS_MAX) -> Self:
        """Wrap a connection that is inside a transaction."""
        began = monotonic() if began_at is None else began_at
        return cls(
            connection=connection,
            _items={},
            _broadcasts={},
            began_at=began,
            _at_end=[],
            ended=Counter(),
            _items_max=items_max,
        )

    async def fetch(self, statement: str, *arguments: object) -> list[Row]:
        """Every row of the answer."""
        return await self.connection.fetch(statement, *arguments)

    async def fetch_row(self, statement: str, *arguments: object) -> Row | None:
        """The first row of the answer, if there is one."""
        return await self.connection.fetchrow(statement, *arguments)

    async def fetch_column(self, statement: str, *arguments: object) -> list[Any]:
        """The first column of the answer."""
        return [row[0] for row in await self.connection.fetch(statement, *arguments)]

    async def fetch_value(self, statement: str, *arguments: object) -> Any:  # noqa: ANN401 — the caller knows the column's type
        """The first column of the first row."""
        return await self.connection.fetchval(statement, *arguments)

    async def execute(self, statement: str, *arguments: object) -> None:
        """Run a statement for its effect."""
        await self.connection.execute(statement, *arguments)

    def announce(
        self,
        topic: str,
        type_: MessageType,
        items: Iterable[Item],
        *,
        delay_seconds: float = 0.0,
    ) -> None:
        """Tell, when this transaction commits; the same item of the same topic is told once."""
        self._items.setdefault((topic, type_, delay_seconds), []).extend(items)

    def withdraw(self, topic: str, type_: MessageType) -> list[Item]:
        """Take back what was announced to a topic for at once: whoever would be told does it in this transaction."""
        return self._items.pop((topic, type_, 0.0), [])

    def broadcast(self, entity: str) -> None:
        """Let every process that keeps a copy of this kind of thing know, when this transaction commits."""
        self._broadcasts[entity] = None

    def announcements(self) -> list[Announcement]:
        """What was announced, in messages of bounded size."""
        return [
            Announcement(
                topic=topic, type=type_, items=tuple(unique[start : start + self._items_max]), delay_seconds=delay
            )
            for (topic, type_, delay), items in self._items.items()
            for unique in [list(dict.fromkeys(items))]
            for start in range(0, len(unique), self._items_max)
        ]

    def broadcasts(self) -> list[str]:
        """The kinds of things that changed, sorted: two transactions must lock their rows in one order."""
        return sorted(self._broadcasts)

    def at_end(self, callback: Callable[[Commit], None]) -> None:
        """Call back once the transaction is over, however it ended; the callback must not raise."""
        self._at_end.append(callback)

    def end(self, commit: Commit) -> None:
        """Tell everybody who asked how it ended."""
        for callback in self._at_end:
            callback(commit)
