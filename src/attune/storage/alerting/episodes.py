"""Rows of `alert`: one for each episode; those that are open stand out by their index."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from attune.domain.alerts.episodes import Episode, Severity, State
from attune.storage.tx import Tx

LOOK_LOCK = 4_127_835_603


async def try_lock(tx: Tx) -> bool:
    """Be the only one to look, for this transaction."""
    return bool(await tx.fetch_value("SELECT pg_try_advisory_xact_lock($1)", LOOK_LOCK))


async def list_open(tx: Tx) -> list[Episode]:
    """Every episode that is not over."""
    rows = await tx.fetch(
        """
        SELECT name, subject, severity, state, message, facts, since, seen_at, fired_at
          FROM alert WHERE state <> 'resolved' ORDER BY id
        """
    )
    return [
        Episode(**dict(row) | {"severity": Severity(row["severity"]), "state": State(row["state"])}) for row in rows
    ]


async def save_open(tx: Tx, episodes: Sequence[Episode]) -> None:
    """Begin these, or note how they stand now; sorted, and one row for each name and subject."""
    ordered = sorted(episodes, key=lambda each: (each.name, each.subject))
    await tx.execute(
        """
        INSERT INTO alert AS a (name, subject, severity, state, message, facts, since, seen_at, fired_at)
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::jsonb[],
                             $7::timestamptz[], $8::timestamptz[], $9::timestamptz[])
        ON CONFLICT (name, subject) WHERE state <> 'resolved' DO UPDATE
           SET state = EXCLUDED.state, severity = EXCLUDED.severity, message = EXCLUDED.message,
               facts = EXCLUDED.facts, since = EXCLUDED.since, seen_at = EXCLUDED.seen_at,
               fired_at = EXCLUDED.fired_at
        """,
        [each.name for each in ordered],
        [each.subject for each in ordered],
        [each.severity for each in ordered],
        [each.state for each in ordered],
        [each.message for each in ordered],
        [each.facts for each in ordered],
        [each.since for each in ordered],
        [each.seen_at for each in ordered],
        [each.fired_at for each in ordered],
    )


async def resolve(tx: Tx, episodes: Sequence[Episode], *, now: datetime) -> None:
    """End these."""
    await tx.execute(
        """
        UPDATE alert a SET state = 'resolved', resolved_at = $3
          FROM unnest($1::text[], $2::text[]) AS o (name, subject)
         WHERE a.name = o.name AND a.subject = o.subject AND a.state = 'firing'
        """,
        [each.name for each in episodes],
        [each.subject for each in episodes],
        now,
    )


async def delete_pending(tx: Tx, episodes: Sequence[Episode]) -> None:
    """Forget these: they were not true for long enough to be told."""
    await tx.execute(
        """
        DELETE FROM alert a USING unnest($1::text[], $2::text[]) AS o (name, subject)
         WHERE a.name = o.name AND a.subject = o.subject AND a.state = 'pending'
        """,
        [each.name for each in episodes],
        [each.subject for each in episodes],
    )


async def delete_resolved(tx: Tx, *, older_than_days: int, limit: int) -> int:
    """Forget episodes that were over long ago, a bounded number at once."""
    deleted = await tx.fetch_column(
        """
        DELETE FROM alert WHERE id = ANY(ARRAY(
            SELECT id FROM alert WHERE resolved_at < now() - make_interval(days => $1)
             ORDER BY resolved_at LIMIT $2 FOR UPDATE SKIP LOCKED))
        RETURNING id
        """,
        older_than_days,
        limit,
    )
    return len(deleted)


async def count_firing(tx: Tx) -> Mapping[str, int]:
    """How many of each name fire."""
    rows = await tx.fetch("SELECT name, count(*) AS firing FROM alert WHERE state = 'firing' GROUP BY name")
    return {row["name"]: row["firing"] for row in rows}
