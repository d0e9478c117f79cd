"""Exchanges, queues and who owns them: the only place where their names are written."""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.domain.errors import Unavailable
from attune.domain.messages import DEAD_TOPIC, MessageType, cancel_topic, dispatch_topic

EVENTS = "attune.events"
EXECUTIONS = "attune.executions"
NOTIFICATIONS = "attune.notifications"
DEAD_LETTERS = "attune.dlx"

# How RabbitMQ's exchanges distribute; the dead letters need patterns: on a direct exchange `#` is a literal key.
EXCHANGE_TYPES = {EVENTS: "topic", EXECUTIONS: "topic", NOTIFICATIONS: "fanout", DEAD_LETTERS: "topic"}

# A message with this header only asks whether a binding exists; whoever receives it drops it.
PROBE_HEADER = "x-attune-probe"

# A worker's queue outlives its worker by this factor of its TTL, so that what it holds expires into the
# dead-letter exchange instead of vanishing with the queue.
EXPIRES_FACTOR = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue, the keys bound to it, and the service that declares and consumes it."""

    name: str
    owner: str
    exchange: str
    keys: tuple[str, ...]
    topics: tuple[str, ...]
    ttl_ms: int | None = None
    expires_ms: int | None = None
    dead_letters: bool = True


EXECUTOR_QUEUES: tuple[Queue, ...] = (
    Queue(
        name="attune.events.queue",
        owner="executor",
        exchange=EVENTS,
        keys=("event.#",),
        topics=(MessageType.EVENT_CREATED,),
    ),
    Queue(
        name="attune.enforcements.queue",
        owner="executor",
        exchange=EXECUTIONS,
        keys=("enforcement.#",),
        topics=(MessageType.ENFORCEMENT_CREATED,),
    ),
    Queue(
        name="attune.execution.requests.queue",
        owner="executor",
        exchange=EXECUTIONS,
        keys=("execution.requested", "line.changed", "pool.changed"),
        topics=(MessageType.EXECUTION_REQUESTED, MessageType.LINE_CHANGED, MessageType.POOL_CHANGED),
    ),
    Queue(
        name="attune.execution.status.queue",
        owner="executor",
        exchange=EXECUTIONS,
        keys=("execution.status.changed",),
        topics=(MessageType.EXECUTION_STATUS_CHANGED,),
    ),
    Queue(
        name="attune.execution.completed.queue",
        owner="executor",
        exchange=EXECUTIONS,
        keys=("execution.completed",),
        topics=(MessageType.EXECUTION_COMPLETED,),
    ),
    Queue(
        name="attune.inquiry.responses.queue",
        owner="executor",
        exchange=EXECUTIONS,
        keys=("inquiry.responded",),
        topics=(MessageType.INQUIRY_RESPONDED,),
    ),
)


def dead_letter_queue(*, ttl_ms: int, exchange: str = DEAD_LETTERS) -> Queue:
    """Where everything that died waits; it has no dead-letter exchange of its own."""
    return Queue(
        name="attune.dlx.queue",
        owner="executor",
        exchange=exchange,
        keys=("#",),
        topics=(DEAD_TOPIC,),
        ttl_ms=ttl_ms,
        dead_letters=False,
    )


def worker_queues(worker_id: int, *, ttl_ms: int, dead_letters: bool = True) -> tuple[Queue, Queue]:
    """A worker's dispatches, and beside them its cancels and pings, which a full prefetch must never hide."""
    dispatch, cancel = dispatch_topic(worker_id), cancel_topic(worker_id)
    return (
        Queue(
            name=f"worker.{worker_id}.executions",
            owner="worker",
            exchange=EXECUTIONS,
            keys=(dispatch,),
            topics=(dispatch,),
            # Without dead letters an expired dispatch would vanish, so then none expires.
            ttl_ms=ttl_ms if dead_letters else None,
            expires_ms=ttl_ms * EXPIRES_FACTOR,
            dead_letters=dead_letters,
        ),
        Queue(
            name=f"worker.{worker_id}.cancel",
            owner="worker",
            exchange=EXECUTIONS,
            keys=(cancel,),
            topics=(cancel,),
            expires_ms=ttl_ms * EXPIRES_FACTOR,
            dead_letters=dead_letters,
        ),
    )


def notification_queue(instance: str) -> str:
    """The queue through which one process hears broadcasts; it lives as long as the process's connection."""
    return f"attune.notifications.{instance}"


def exchange_of(topic: str, *, dead_letter_exchange: str = DEAD_LETTERS) -> str:
    """The exchange a topic is published to."""
    if topic == DEAD_TOPIC:
        return dead_letter_exchange
    return EVENTS if topic.startswith("event.") else EXECUTIONS


def is_dispatch(topic: str) -> bool:
    """Whether this is some worker's dispatch topic."""
    return topic.startswith(dispatch_topic(0).removesuffix("0"))


def topics_of(queues: Sequence[Queue]) -> list[str]:
    """Every topic that lands in one of these queues."""
    return [topic for queue in queues for topic in queue.topics]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRow:
    """One queue for the reader: what it is, whose it is, and what is wrong with it."""

    queue: str
    exchange: str
    keys: tuple[str, ...]
    declared_by: str
    consumed_by: str
    messages: int | None = None
    consumers: int | None = None
    problem: str = ""
    cure: str = ""


def describe(queue: Queue, *, problem: str = "", cure: str = "") -> TopologyRow:
    """A queue as it should be: who consumes it declares it."""
    return TopologyRow(
        queue=queue.name,
        exchange=queue.exchange,
        keys=queue.keys,
        declared_by=queue.owner,
        consumed_by=queue.owner,
        problem=problem,
        cure=cure,
    )


class TopologyMismatch(Unavailable):
    """The broker has a queue or exchange of this name that differs from ours: a service would run deaf."""

    code = "topology_mismatch"
