"""Names, and who owns what."""

from __future__ import annotations

import re

from attune.domain.messages import DEAD_TOPIC, MessageType, cancel_topic, dispatch_topic
from attune.storage.database import Database
from attune.transport.topology import (
    DEAD_LETTERS,
    EVENTS,
    EXCHANGE_TYPES,
    EXECUTIONS,
    EXECUTOR_QUEUES,
    dead_letter_queue,
    describe,
    exchange_of,
    is_dispatch,
    notification_queue,
    topics_of,
    worker_queues,
)

QUEUES = (*EXECUTOR_QUEUES, dead_letter_queue(ttl_ms=86_400_000), *worker_queues(3, ttl_ms=300_000))


def matches(key: str, topic: str) -> bool:
    """Whether a topic exchange would route this; our patterns only ever end in a number of words."""
    return re.fullmatch(re.escape(key).replace(r"\.\#", r"(\..+)?").replace(r"\#", ".*"), topic) is not None


def test_the_names_are_those_of_the_specification() -> None:
    assert {queue.name: (queue.exchange, queue.keys) for queue in QUEUES} == {
        "attune.events.queue": ("attune.events", ("event.#",)),
        "attune.enforcements.queue": ("attune.executions", ("enforcement.#",)),
        "attune.execution.requests.queue": (
            "attune.executions",
            ("execution.requested", "line.changed", "pool.changed"),
        ),
        "attune.execution.status.queue": ("attune.executions", ("execution.status.changed",)),
        "attune.execution.completed.queue": ("attune.executions", ("execution.completed",)),
        "attune.inquiry.responses.queue": ("attune.executions", ("inquiry.responded",)),
        "attune.dlx.queue": ("attune.dlx", ("#",)),
        "worker.3.executions": ("attune.executions", ("execution.dispatch.worker.3",)),
        "worker.3.cancel": ("attune.executions", ("execution.cancel.worker.3",)),
    }
    assert notification_queue("abc") == "attune.notifications.abc"


def test_dead_letters_go_through_a_topic_exchange() -> None:
    assert EXCHANGE_TYPES[DEAD_LETTERS] == "topic"


def test_every_topic_lands_in_exactly_one_queue() -> None:
    for topic in topics_of(QUEUES):
        landing = [
            queue.name
            for queue in QUEUES
            if queue.exchange == exchange_of(topic) and any(matches(key, topic) for key in queue.keys)
        ]
        assert len(landing) == 1, topic


def test_a_queue_dead_letters_unless_it_holds_the_dead() -> None:
    assert [queue.name for queue in QUEUES if not queue.dead_letters] == ["attune.dlx.queue"]


def test_a_workers_queue_outlives_what_it_holds() -> None:
    dispatches, _ = worker_queues(3, ttl_ms=1000)
    assert dispatches.expires_ms is not None
    assert dispatches.ttl_ms is not None
    assert dispatches.expires_ms >= 10 * dispatches.ttl_ms


def test_without_dead_letters_no_dispatch_expires_into_nothing() -> None:
    dispatches, _ = worker_queues(3, ttl_ms=1000, dead_letters=False)
    assert dispatches.ttl_ms is None


def test_topics_know_their_exchange() -> None:
    assert exchange_of("event.created") == EVENTS
    assert exchange_of("line.changed") == EXECUTIONS
    assert exchange_of(DEAD_TOPIC) == DEAD_LETTERS
    assert exchange_of(DEAD_TOPIC, dead_letter_exchange="other.dlx") == "other.dlx"
    assert is_dispatch(dispatch_topic(12))
    assert not is_dispatch(cancel_topic(12))


def test_a_row_says_who_declares_and_who_consumes() -> None:
    row = describe(QUEUES[0])
    assert (row.queue, row.declared_by, row.consumed_by) == ("attune.events.queue", "executor", "executor")


async def test_the_outbox_takes_exactly_the_topics_there_are(database: Database) -> None:
    async with database.transaction() as tx:
        for topic in topics_of(QUEUES):
            await tx.execute("INSERT INTO outbox (topic, type) VALUES ($1, $2)", topic, MessageType.EVENT_CREATED)
        assert await tx.fetch_value("SELECT count(*) FROM outbox") == len(topics_of(QUEUES))
