"""What services tell each other: facts in the past tense, each a hint to look at some rows.

A message carries ids and attempts, never parameters, results, leases or secrets: the handler re-reads the rows.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

# One message carries at most this many items; what is announced beyond it becomes the next message.
ITEMS_MAX = 100

# (id, attempt). The attempt is 0 where the id is not an execution.
Item = tuple[int, int]


class MessageType(StrEnum):
    """Every kind of message, which is also the topic of those that go to one shared queue."""

    EVENT_CREATED = "event.created"
    ENFORCEMENT_CREATED = "enforcement.created"
    EXECUTION_REQUESTED = "execution.requested"
    LINE_CHANGED = "line.changed"
    POOL_CHANGED = "pool.changed"
    EXECUTION_STATUS_CHANGED = "execution.status.changed"
    EXECUTION_COMPLETED = "execution.completed"
    INQUIRY_RESPONDED = "inquiry.responded"
    EXECUTION_DISPATCHED = "execution.dispatched"
    EXECUTION_CANCEL_REQUESTED = "execution.cancel.requested"
    WORKER_PINGED = "worker.pinged"


# Where a message that died on its way waits for the dead-letter handler.
DEAD_TOPIC = "dead"


def dispatch_topic(worker_id: int) -> str:
    """The topic of executions placed on one worker."""
    return f"execution.dispatch.worker.{worker_id}"


def cancel_topic(worker_id: int) -> str:
    """The topic of cancels and pings for one worker."""
    return f"execution.cancel.worker.{worker_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A message to be written with the change it announces."""

    topic: str
    type: MessageType
    items: tuple[Item, ...]
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as it is stored, published and handed to its handler."""

    id: int
    topic: str
    type: str
    items: tuple[Item, ...]
    deliveries: int
    created: datetime
    not_before: datetime
    deaths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that was given up, or something that could not be read as one (then `body` holds it)."""

    id: int
    topic: str
    type: str
    items: tuple[Item, ...]
    body: str | None
    reason: str
    error: str
    deliveries: int
    deaths: tuple[str, ...]
    created: datetime
    parked_at: datetime
    # What it was about, as far as is known.
    action_ref: str | None
    worker_id: int | None
    # What became of it, who did that, and when; none of the three as long as it waits for a person.
    outcome: str | None
    outcome_by: str | None
    outcome_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """Something of this kind changed, up to this revision; receivers read again what they need."""

    entity: str
    revision: int
