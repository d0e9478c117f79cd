"""Messages that died: kept for a while with what became of them, to be looked at, sent again or dropped."""

from collections.abc import Sequence
from dataclasses import dataclass

from attune.domain.endings.dead_letters import EXPIRED_REASON, Expiry, Outcome
from attune.domain.messages import DeadLetter, Message
from attune.storage.tx import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried:
    """An expired dispatch, and what it led to."""

    expiry: Expiry
    outcome: Outcome


def dead_letter_of(row: Row) -> DeadLetter:
    """A stored row as the dead letter it is."""
    columns = dict(row)
    items = tuple((item[0], item[1]) for item in columns.pop("items"))
    return DeadLetter(**columns | {"items": items, "deaths": tuple(columns["deaths"])})


async def insert(tx: Tx, message: Message, *, reason: str, error: str) -> int:
    """Park a message with the reason why nobody will try it again by itself."""
    parked: int = await tx.fetch_value(
        """
        INSERT INTO dead_letter (topic, type, items, reason, error, deliveries, deaths, created, action_ref, worker_id)
        SELECT m.topic, m.type, m.items, $4, $5, $6, m.deaths, $8,
               (SELECT action_ref FROM execution
                 WHERE m.type LIKE 'execution.%' AND id = (m.items #>> '{0,0}')::bigint),
               substring(m.topic || ' ' || m.deaths::text FROM 'worker\\.([0-9]{1,18})')::bigint
          FROM (SELECT $1::text AS topic, $2::text AS type, $3::jsonb AS items, $7::jsonb AS deaths) m
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


async def insert_buried(tx: Tx, buried: Sequence[Buried], *, by: str) -> None:
    """Keep expired dispatches with what they led to, one row for each attempt; their assignments still exist.

    One that comes a second time has no effect, and no second row.
    """
    await tx.execute(
        """
        INSERT INTO dead_letter (topic, type, items, reason, deaths, created, action_ref, worker_id, worker_instance,
                                 outcome, outcome_by, outcome_at)
        SELECT COALESCE('execution.dispatch.worker.' || w.id, 'dead'), 'execution.dispatched',
               jsonb_build_array(jsonb_build_array(b.execution_id, b.attempt)), $6, b.deaths, b.died_at, e.action_ref,
               w.id, CASE WHEN b.outcome <> $8 THEN a.worker_instance END, b.outcome, $7, now()
          FROM unnest($1::bigint[], $2::int[], $3::jsonb[], $4::timestamptz[], $5::text[])
               AS b (execution_id, attempt, deaths, died_at, outcome)
          LEFT JOIN execution e ON e.id = b.execution_id
          LEFT JOIN assignment a ON a.execution_id = b.execution_id AND a.attempt = b.attempt
         CROSS JOIN LATERAL (SELECT COALESCE(
               a.worker_id, substring(b.deaths::text FROM 'worker\\.([0-9]{1,18})')::bigint) AS id) w
         WHERE b.outcome <> $8 OR NOT EXISTS (
               SELECT 1 FROM dead_letter d
                WHERE d.type = 'execution.dispatched' AND d.reason = $6
                  AND d.items = jsonb_build_array(jsonb_build_array(b.execution_id, b.attempt)))
        """,
        [each.expiry.item[0] for each in buried],
        [each.expiry.item[1] for each in buried],
        [each.expiry.deaths for each in buried],
        [each.expiry.died_at for each in buried],
        [each.outcome for each in buried],
        EXPIRED_REASON,
        by,
        Outcome.NO_EFFECT,
    )


async def lock_many(tx: Tx, dead_letter_ids: Sequence[int]) -> list[DeadLetter]:
    """Lock these, in ascending order; those already gone are not returned."""
    rows = await tx.fetch(
        """
        SELECT id, topic, type, items, body, reason, error, deliveries, deaths, created, parked_at, action_ref,
               worker_id, outcome, outcome_by, outcome_at
          FROM dead_letter WHERE id = ANY($1) ORDER BY id FOR UPDATE
        """,
        dead_letter_ids,
    )
    return [dead_letter_of(row) for row in rows]


async def save_outcomes(tx: Tx, outcomes: Sequence[tuple[int, Outcome]], *, by: str) -> None:
    """Note what became of these; the rows are locked."""
    await tx.execute(
        """
        UPDATE dead_letter d SET outcome = o.outcome, outcome_by = $3, outcome_at = now()
          FROM unnest($1::bigint[], $2::text[]) AS o (id, outcome)
         WHERE d.id = o.id AND d.id = ANY($1)
        """,
        [each[0] for each in outcomes],
        [each[1] for each in outcomes],
        by,
    )


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
