"""Who stands in which line: decided under the lines' locks, in the transaction that accepts.

So the order of a line is the order in which requests were committed, and a full line is known exactly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from attune.domain.errors import Unavailable
from attune.domain.lines import LineKey, LinePolicy, LineState
from attune.storage import lines
from attune.storage.lines import Joined
from attune.storage.tx import Tx

# An idle line may be removed between making it and locking it; then it is made again.
LOCK_TRIES_MAX = 5


class QueueFull(Unavailable):
    """The line has as many waiting as its policy allows."""

    code = "queue_full"


@dataclass(slots=True, kw_only=True)
class LockedLines:
    """The lines of a batch, locked, as they will be when the batch has joined."""

    policies: Mapping[LineKey, LinePolicy]
    states: dict[LineKey, LineState]
    now: datetime
    counts: dict[LineKey, int] = field(default_factory=dict)

    def joined(self) -> list[Joined]:
        """The lines that somebody joined."""
        return [
            Joined(line=self.states[key], policy=self.policies[key], count=count) for key, count in self.counts.items()
        ]


async def lock_lines(tx: Tx, wanted: Mapping[LineKey, LinePolicy]) -> LockedLines:
    """Make the lines that are missing and lock all of them."""
    if not wanted:
        return LockedLines(policies={}, states={}, now=datetime.min.replace(tzinfo=UTC))
    for _ in range(LOCK_TRIES_MAX):
        states, now = await lines.lock_by_key(tx, list(wanted))
        if len(states) == len(wanted):
            return LockedLines(policies=wanted, states=states, now=now)
        await lines.insert_missing(tx, wanted)
    msg = "the lines of this batch are removed as fast as they are made"
    raise Unavailable(msg)
