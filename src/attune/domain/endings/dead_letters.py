"""What becomes of dispatches that no worker took in time, and of messages that were given up."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from attune.domain.execution import Change, Failure, Status
from attune.domain.json_values import Json
from attune.domain.messages import DeadLetter, Item, Message, MessageType
from attune.domain.retry import Running
from attune.domain.unplacing import Unplacing, decide_unplacing

ACTOR = "dead_letter_handler"
# Why a dispatch is among the dead letters.
EXPIRED_REASON = "expired"
# A worker that let a dispatch expire is the last choice of placement for this long.
AVOIDED_SECONDS = 300.0

EXPIRED = Failure(
    code="worker_queue_ttl_expired",
    message="Worker did not process execution within configured TTL",
    by=ACTOR,
)
# What scripts written against the specification look for.
EXPIRED_TEXT = "Worker queue TTL expired"
EXPIRED_RESULT: Json = {"error": EXPIRED_TEXT, "message": EXPIRED.message, "failed_by": ACTOR}


class Outcome(StrEnum):
    """What became of a dead letter; one without an outcome waits for a person."""

    PLACED_ELSEWHERE = "placed_elsewhere"
    FAILED_EXECUTION = "failed_execution"
    NO_EFFECT = "no_effect"
    REPLAYED = "replayed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """One attempt whose dispatch expired, where and when."""

    item: Item
    deaths: tuple[str, ...]
    died_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """An execution that is still scheduled for the attempt whose dispatch expired."""

    running: Running
    priority: int
    placements: int
    pinned: bool
    # Whether a worker that is alive, and that nobody has taken out, could run it.
    served: bool


def expiries_of(messages: Sequence[Message]) -> list[Expiry]:
    """The attempts of dispatches that died; each is named once."""
    found = {
        item: Expiry(item=item, deaths=message.deaths, died_at=message.created)
        for message in messages
        if message.type == MessageType.EXECUTION_DISPATCHED
        for item in message.items
    }
    return list(found.values())


def decide_burials(expired: Sequence[Expired], *, placements_max: int) -> list[Change]:
    """Another worker's turn, or the end; what matters most comes first."""
    ordered = sorted(expired, key=lambda each: (-each.priority, each.running.execution_id))
    return [_decide(each, placements_max=placements_max) for each in ordered]


def _decide(expired: Expired, *, placements_max: int) -> Change:
    """Pinned work has nowhere else to go, and where nobody could run it there is no elsewhere."""
    lonely = not expired.pinned and not expired.served
    why = Unplacing(
        actor=ACTOR,
        reason=f"{EXPIRED_TEXT}, and no worker could run it" if lonely else EXPIRED_TEXT,
        placements_max=placements_max if expired.served and not expired.pinned else 0,
        failure=EXPIRED,
        result=EXPIRED_RESULT,
    )
    return decide_unplacing(expired.running, placements=expired.placements, why=why)


def outcome_of(change: Change | None) -> Outcome:
    """What a dead letter came to, by the move it led to."""
    if change is None:
        return Outcome.NO_EFFECT
    return Outcome.FAILED_EXECUTION if change.target is Status.FAILED else Outcome.PLACED_ELSEWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is done with a dead letter on a person's word: what is sent again, what becomes of it, and in words."""

    dead_letter_id: int
    outcome: Outcome | None
    message: str
    items: tuple[Item, ...] = ()
    # Whether anything was sent or dropped.
    effect: bool = False
    # Whether the outcome is still to be noted.
    is_new: bool = True


def decide_replay(letter: DeadLetter, waiting: Collection[Item]) -> Verdict:
    """Send it again if that can do anything; `waiting` are the attempts that still wait for their worker."""
    if (settled := _settled(letter)) is not None:
        return settled
    if letter.body is not None or letter.type not in set(MessageType):
        reason = "it is no message" if letter.body is not None else f"this version knows no {letter.type}"
        return Verdict(dead_letter_id=letter.id, outcome=None, message=f"cannot be sent again: {reason}")
    items = letter.items
    if letter.type == MessageType.EXECUTION_DISPATCHED:
        items = tuple(item for item in items if item in waiting)
    if not items:
        over = ", ".join(f"attempt {attempt} of execution {execution_id}" for execution_id, attempt in letter.items)
        message = f"nothing was sent: {over} no longer waits for a worker"
        return Verdict(dead_letter_id=letter.id, outcome=Outcome.NO_EFFECT, message=message)
    return Verdict(dead_letter_id=letter.id, outcome=Outcome.REPLAYED, message="sent again", items=items, effect=True)


def decide_drop(letter: DeadLetter) -> Verdict:
    """Give it up for good, unless something became of it already."""
    dropped = Verdict(dead_letter_id=letter.id, outcome=Outcome.DROPPED, message="dropped", effect=True)
    return _settled(letter) or dropped


def _settled(letter: DeadLetter) -> Verdict | None:
    if letter.outcome is None:
        return None
    outcome = Outcome(letter.outcome)
    message = f"nothing was done: it is settled, {outcome.replace('_', ' ')} by {letter.outcome_by}"
    return Verdict(dead_letter_id=letter.id, outcome=outcome, message=message, is_new=False)
