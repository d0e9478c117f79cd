"""Messages that were given up: kept for a while, to be looked at, sent again or dropped."""

from collections.abc import Sequence

from attune.domain.messages import DeadLetter, Message
from attune.storage.tx import Row, Tx


def dead_letter_of(row: Row) -> DeadLetter:
    """A stored row as the dead letter it is."""
    return DeadLetter(
        id=row["id"],
        topic=row["topic"],
        type=row["type"],
        items=tuple((item[0], item[1]) for item in row["items"]),
        body=row["body"],
        reason=row["reason"],
        error=row["error"],
        deliveries=row["deliveries"],
        deaths=tuple(row["deaths"]),
        created=row["created"],
        parked_at=row["parked_at"],
    )


async def insert(tx: Tx, message: Message, *, reason: str, error: str) -> int:
    """Park a message with the reason why nobody will try it again by itself."""
    parked: int = await tx.fetch_value(
        """
        INSERT INTO dead_letter (topic, type, items, reason, error, deliveries, deaths, created)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        RETURNING id
        """,
        message.topic,
        message.type,
        message.items,
        reason,
        error,
        message.deliveries,
        message.deaths,
        message.created,
    )
    return parked


async def insert_unreadable(tx: Tx, *, topic: str, body: str, reason: str, error: str) -> int:
    """Park what could not be read as a message, as it came."""
    parked: int = await tx.fetch_value(
        """
        INSERT INTO dead_letter (topic, type, body, reason, error, created)
        VALUES ($1, 'unreadable', $2, $3, $4, now())
        RETURNING id
        """,
        topic,
        body,
        reason,
        error,
    )
    return parked


async def find(tx: Tx, dead_letter_id: int) -> DeadLetter | None:
    """One dead letter."""
    row = await tx.fetch_row(
        """
        SELECT id, topic, type, items, body, reason, error, deliveries, deaths, created, parked_at
          FROM dead_letter WHERE id = $1
        """,
        dead_letter_id,
    )
    return dead_letter_of(row) if row else None


async def list_page(tx: Tx, *, before: int | None, limit: int) -> list[DeadLetter]:
    """The newest dead letters, or those that came before one of them."""
    rows = await tx.fetch(
        """
        SELECT id, topic, type, items, body, reason, error, deliveries, deaths, created, parked_at
          FROM dead_letter
         WHERE $1::bigint IS NULL OR id < $1
         ORDER BY id DESC LIMIT $2
        """,
        before,
        limit,
    )
    return [dead_letter_of(row) for row in rows]


async def count(tx: Tx) -> int:
    """How many are parked."""
    counted: int = await tx.fetch_value("SELECT count(*) FROM dead_letter")
    return counted


async def delete(tx: Tx, dead_letter_ids: Sequence[int]) -> list[DeadLetter]:
    """Take these out, to drop them or to announce them again; those already gone are not returned."""
    rows = await tx.fetch(
        """
        DELETE FROM dead_letter WHERE id = ANY($1)
        RETURNING id, topic, type, items, body, reason, error, deliveries, deaths, created, parked_at
        """,
        dead_letter_ids,
    )
    return [dead_letter_of(row) for row in rows]


async def delete_older_than(tx: Tx, *, seconds: float, limit: int) -> int:
    """Forget the oldest beyond their time, a bounded number at once."""
    deleted = await tx.fetch_column(
        """
        DELETE FROM dead_letter WHERE id = ANY(ARRAY(
            SELECT id FROM dead_letter WHERE parked_at <= now() - make_interval(secs => $1)
             ORDER BY parked_at LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING id
        """,
        seconds,
        limit,
    )
    return len(deleted)
