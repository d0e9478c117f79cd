"""The attempts this process knows of: whoever finds one here drops it, and only its owner runs it.

An attempt is entered before the database is asked for it, so that neither a second message nor the answer to a
heartbeat can lead to a second start.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from attune.domain.messages import Item
from attune.operations.start_executions import Started
from attune.runtime.clock import monotonic
from attune.storage.assignments import Held
from attune.worker.runners.protocol import Stop


class Stage(Enum):
    """How far an attempt has come in this process."""

    # Placed here, waits for a slot, not yet claimed.
    WAITING = auto()
    # Being given back, because there is no slot for it.
    RETURNING = auto()
    # The transaction that claims it is under way.
    CLAIMING = auto()
    # That transaction had no answer; nothing was started.
    UNSETTLED = auto()
    RUNNING = auto()
    # It has ended and is being reported; the lease is still renewed, the slot is free.
    ENDING = auto()
    # Not in the table any more.
    GONE = auto()


_TAKES_SLOT: Final = frozenset({Stage.CLAIMING, Stage.UNSETTLED, Stage.RUNNING})
_LEASED: Final = frozenset({Stage.RUNNING, Stage.ENDING})


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One attempt and what this process has done about it."""

    key: Item
    stage: Stage
    # When it came here, on this machine's monotonic clock.
    since: float = field(default_factory=monotonic)
    started: Started | None = None
    # On this machine's monotonic clock: from here on, what runs must be gone.
    good_until: float = 0.0
    stop: Stop = field(default_factory=Stop)

    @property
    def held(self) -> Held:
        if self.started is None:
            raise RuntimeError(f"attempt {self.key} was never claimed")
        return Held(execution_id=self.key[0], attempt=self.key[1], lease=self.started.lease)


class Attempts:
    """The table of attempts, and the count of free slots that follows from it."""

    def __init__(self, *, capacity: int, buffer: int) -> None:
        self.capacity = capacity
        self.buffer = buffer
        self._entries: dict[Item, Entry] = {}
        self._counts = dict.fromkeys(Stage, 0)

    def __contains__(self, key: Item) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def free(self) -> int:
        """Slots that nothing runs in or is about to."""
        return self.capacity - sum(self._counts[stage] for stage in _TAKES_SLOT)

    @property
    def waiting(self) -> int:
        """Attempts that wait here for a slot."""
        return self._counts[Stage.WAITING]

    def find(self, key: Item) -> Entry | None:
        return self._entries.get(key)

    def enter(self, key: Item, stage: Stage) -> Entry:
        """Take charge of an attempt that is not in the table."""
        if key in self._entries:
            raise ValueError(f"attempt {key} is in the table already")
        entry = self._entries[key] = Entry(key=key, stage=stage)
        self._counts[stage] += 1
        return entry

    def move(self, entry: Entry, stage: Stage) -> None:
        self._counts[entry.stage] -= 1
        entry.stage = stage
        self._counts[stage] += 1

    def drop(self, entry: Entry) -> None:
        """Forget an attempt; dropping twice changes nothing."""
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
            self._counts[entry.stage] -= 1
            entry.stage = Stage.GONE

    def in_stage(self, stage: Stage) -> list[Entry]:
        """Oldest first."""
        if not self._counts[stage]:
            return []
        return [entry for entry in self._entries.values() if entry.stage is stage]

    def leased(self) -> list[Entry]:
        """Those whose lease a heartbeat renews."""
        return [entry for entry in self._entries.values() if entry.stage in _LEASED]

    def unknown(self, keys: Iterable[Item]) -> set[Item]:
        return {key for key in keys if key not in self._entries}
