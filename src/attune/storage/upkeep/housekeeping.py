"""Partitions and retention: what keeps tables from growing for ever."""

from attune.storage.tx import Tx

HOUSEKEEPING_LOCK = 4_127_835_602


async def try_lock(tx: Tx) -> bool:
    """Be the only one to keep house, for this transaction."""
    return bool(await tx.fetch_value("SELECT pg_try_advisory_xact_lock($1)", HOUSEKEEPING_LOCK))


async def ensure_partitions(tx: Tx, *, days_ahead: int) -> int:
    """Make the partitions of the coming days; returns how many were missing."""
    made: int = await tx.fetch_value("SELECT ensure_partitions($1)", days_ahead)
    return made


async def delete_idempotency_keys(tx: Tx, *, older_than_hours: int, limit: int) -> int:
    """Forget keys whose requests nobody will repeat."""
    deleted = await tx.fetch_column(
        """
        DELETE FROM idempotency_key WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM idempotency_key WHERE created < now() - make_interval(hours => $1) LIMIT $2))
        RETURNING key
        """,
        older_than_hours,
        limit,
    )
    return len(deleted)


async def drop_history(tx: Tx, *, older_than_days: int) -> int:
    """Drop whole days of history and admissions, their balances kept in checkpoints; returns how many tables."""
    dropped: int = await tx.fetch_value("SELECT drop_history($1)", older_than_days)
    return dropped


async def drop_logs(tx: Tx, *, older_than_days: int) -> int:
    """Drop whole days of what actions printed; returns how many tables."""
    dropped: int = await tx.fetch_value("SELECT drop_logs($1)", older_than_days)
    return dropped
