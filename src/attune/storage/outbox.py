"""Messages on their way: written with the change they announce, gone when their effect or the broker has them."""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.domain.messages import DEAD_TOPIC, Announcement, Message
from attune.storage.tx import Row, Tx

# A back-off stops doubling here: 64 times the first pause.
DOUBLINGS_MAX = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What a topic has to take: messages nothing speaks against, and others."""

    topic: str
    fresh: bool
    suspect: bool


def message_of(row: Row) -> Message:
    """A stored row as the message it is."""
    return Message(
        id=row["id"],
        topic=row["topic"],
        type=row["type"],
        items=tuple((item[0], item[1]) for item in row["items"]),
        deliveries=row["deliveries"],
        created=row["created"],
        not_before=row["not_before"],
        deaths=tuple(row["deaths"]),
    )


async def insert(tx: Tx, announcements: Sequence[Announcement]) -> list[Message]:
    """Write what a transaction announces; returns only once it is certain to be part of the transaction."""
    if not announcements:
        return []
    rows = await tx.fetch(
        """
        INSERT INTO outbox (topic, type, items, not_before)
        SELECT topic, type, items, now() + make_interval(secs => delay)
          FROM unnest($1::text[], $2::text[], $3::jsonb[], $4::float8[]) AS a (topic, type, items, delay)
        RETURNING id, topic, type, items, deliveries, created, not_before, deaths
        """,
        [announcement.topic for announcement in announcements],
        [announcement.type for announcement in announcements],
        [announcement.items for announcement in announcements],
        [announcement.delay_seconds for announcement in announcements],
    )
    return [message_of(row) for row in rows]


async def take(tx: Tx, topic: str, *, limit: int, suspect_seconds: float) -> list[Message]:
    """Take due messages that nothing speaks against: their removal commits with their effect.

    Rows held by another consumer are passed over: no order is promised here.
    """
    rows = await tx.fetch(
        """
        DELETE FROM outbox WHERE id = ANY(ARRAY(
            SELECT id FROM outbox
             WHERE topic = $1 AND not_before <= now() AND deliveries = 0
               AND not_before > now() - make_interval(secs => $3)
             ORDER BY not_before LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING id, topic, type, items, deliveries, created, not_before, deaths
        """,
        topic,
        limit,
        suspect_seconds,
    )
    return [message_of(row) for row in rows]


async def count_suspect(tx: Tx, topic: str, *, suspect_seconds: float, backoff_seconds: float) -> Message | None:
    """Pick one message that failed before or is old for no known reason, and count the delivery before it is tried.

    Until its handler commits it is put off like any failure, so that one which kills its process comes back later.
    """
    row = await tx.fetch_row(
        """
        UPDATE outbox SET deliveries = deliveries + 1,
                          not_before = now() + make_interval(secs => $3 * power(2, least(deliveries, $4)))
         WHERE id = (
            SELECT id FROM outbox
             WHERE topic = $1 AND not_before <= now()
               AND (deliveries > 0 OR not_before <= now() - make_interval(secs => $2))
             ORDER BY not_before LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING id, topic, type, items, deliveries, created, not_before, deaths
        """,
        topic,
        suspect_seconds,
        backoff_seconds,
        DOUBLINGS_MAX,
    )
    return message_of(row) if row else None


async def insert_counted(tx: Tx, message: Message, *, delay_seconds: float) -> Message:
    """Keep a message that came from the broker as a row, one delivery older and due again after the delay."""
    (row,) = await tx.fetch(
        """
        INSERT INTO outbox (topic, type, items, deliveries, deaths, created, not_before)
        VALUES ($1, $2, $3, $4::int + 1, $5, $6, now() + make_interval(secs => $7))
        RETURNING id, topic, type, items, deliveries, created, not_before, deaths
        """,
        message.topic,
        message.type,
        message.items,
        message.deliveries,
        message.deaths,
        message.created,
        delay_seconds,
    )
    return message_of(row)


async def count_failed(tx: Tx, message_id: int, *, delay_seconds: float) -> bool:
    """Count a failed delivery and put the message off; False if it is gone."""
    updated = await tx.fetch_value(
        """
        UPDATE outbox SET deliveries = deliveries + 1, not_before = now() + make_interval(secs => $2)
         WHERE id = $1 RETURNING id
        """,
        message_id,
        delay_seconds,
    )
    return updated is not None


async def uncount(tx: Tx, message_id: int, *, delay_seconds: float) -> None:
    """Take back a counted delivery that failed through no fault of the message, and put it off."""
    await tx.execute(
        """
        UPDATE outbox SET deliveries = deliveries - 1, not_before = now() + make_interval(secs => $2)
         WHERE id = $1 AND deliveries > 0
        """,
        message_id,
        delay_seconds,
    )


async def put_off(tx: Tx, message_ids: Sequence[int], *, delay_seconds: float) -> None:
    """Let messages rest that could not be sent, without blaming them for it."""
    await tx.execute(
        "UPDATE outbox SET not_before = now() + make_interval(secs => $2) WHERE id = ANY($1)",
        message_ids,
        delay_seconds,
    )


async def delete(tx: Tx, message_id: int) -> bool:
    """Remove one message; False if it is gone or another consumer holds it."""
    deleted = await tx.fetch_value(
        """
        DELETE FROM outbox WHERE id = (SELECT id FROM outbox WHERE id = $1 FOR UPDATE SKIP LOCKED) RETURNING id
        """,
        message_id,
    )
    return deleted is not None


async def delete_many(tx: Tx, message_ids: Sequence[int]) -> None:
    """Remove what the broker has confirmed."""
    await tx.execute("DELETE FROM outbox WHERE id = ANY($1)", message_ids)


async def find_due(tx: Tx, topics: Sequence[str], *, suspect_seconds: float) -> list[Due]:
    """Which of these topics have something to take: one statement for everything a process consumes."""
    rows = await tx.fetch(
        """
        SELECT topic,
               EXISTS (SELECT 1 FROM outbox o WHERE o.topic = t.topic COLLATE "C" AND o.deliveries = 0
                          AND o.not_before <= now() AND o.not_before > now() - make_interval(secs => $2)) AS fresh,
               EXISTS (SELECT 1 FROM outbox o WHERE o.topic = t.topic COLLATE "C" AND o.not_before <= now()
                          AND (o.deliveries > 0 OR o.not_before <= now() - make_interval(secs => $2))) AS suspect
          FROM unnest($1::text[]) AS t (topic)
        """,
        topics,
        suspect_seconds,
    )
    return [Due(topic=row["topic"], fresh=row["fresh"], suspect=row["suspect"]) for row in rows]


async def claim_overdue(tx: Tx, *, limit: int, overdue_seconds: float, claim_seconds: float) -> list[Message]:
    """Take over messages whose publisher is late or gone, by putting them off for as long as publishing may take.

    A message that was delayed on purpose has no publisher, so it is taken as soon as it is due.
    """
    rows = await tx.fetch(
        """
        UPDATE outbox SET not_before = now() + make_interval(secs => $3)
         WHERE id = ANY(ARRAY(
            SELECT id FROM outbox
             WHERE not_before <= now() - CASE WHEN not_before > created THEN interval '0'
                                              ELSE make_interval(secs => $2) END
             ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
        RETURNING id, topic, type, items, deliveries, created, not_before, deaths
        """,
        limit,
        overdue_seconds,
        claim_seconds,
    )
    return [message_of(row) for row in rows]


async def expire_dispatches(tx: Tx, *, ttl_seconds: float, limit: int) -> list[Message]:
    """Move dispatches that no worker took in time to the dead letters."""
    rows = await tx.fetch(
        """
        UPDATE outbox SET topic = $3, not_before = now(), created = now(), deliveries = 0,
                          deaths = deaths || jsonb_build_array(topic || ' expired at ' || now())
         WHERE id = ANY(ARRAY(
            SELECT id FROM outbox
             WHERE topic >= 'execution.dispatch.worker.' AND topic < 'execution.dispatch.worker/'
               AND created <= now() - make_interval(secs => $1)
             ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING id, topic, type, items, deliveries, created, not_before, deaths
        """,
        ttl_seconds,
        limit,
        DEAD_TOPIC,
    )
    return [message_of(row) for row in rows]


async def measure(tx: Tx, *, limit: int) -> tuple[int, float]:
    """How many messages are due (counted up to a limit) and the age of the oldest in seconds."""
    row = await tx.fetch_row(
        """
        SELECT count(*) AS rows, COALESCE(extract(epoch FROM now() - min(not_before)), 0)::float8 AS oldest
          FROM (SELECT not_before FROM outbox WHERE not_before <= now() LIMIT $1) due
        """,
        limit,
    )
    return (row["rows"], row["oldest"]) if row else (0, 0.0)
