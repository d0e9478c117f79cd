"""Rows of `line_checkpoint` and `history_checkpoint`: up to where the logs were verified, and the balances there."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import asyncpg

from attune.storage.tx import Tx
from attune.storage.upkeep.claims.invariant import Reads


class Kind(StrEnum):
    """Where to begin in the logs of lines."""

    # Behind what retention dropped: everything there is.
    RETAINED = "retained"
    # Behind what an earlier check found in order.
    VERIFIED = "verified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a check begins."""

    kind: Kind
    history_since: datetime


EVERYTHING = Checkpoint(kind=Kind.RETAINED, history_since=datetime(2000, 1, 1, tzinfo=UTC))


async def find_verified(tx: Tx) -> Checkpoint:
    """Behind what was verified; a minute of history is read again, because a clock may have been set back."""
    since = await tx.fetch_value("SELECT verified_at - interval '1 minute' FROM history_checkpoint")
    return Checkpoint(kind=Kind.VERIFIED, history_since=since)


async def prepare_reading(tx: Tx) -> None:
    """Let this transaction take the time it needs, and plan for the checkpoint it is given."""
    await tx.execute("SET LOCAL statement_timeout = 0")
    await tx.execute("SET LOCAL plan_cache_mode = force_custom_plan")


async def avoid_whole_tables(tx: Tx, reads: Reads, checkpoint: Checkpoint) -> None:
    """Read the rows behind a checkpoint by their indexes: the planner cannot know that they are few."""
    few = checkpoint.kind is Kind.VERIFIED
    await tx.execute(
        """
        SELECT set_config('enable_seqscan', $1, true), set_config('enable_hashjoin', $2, true),
               set_config('enable_mergejoin', $2, true)
        """,
        "off" if few and reads is not Reads.STATE else "on",
        "off" if few and reads is Reads.HISTORY else "on",
    )


async def may_be_moved(tx: Tx) -> bool:
    """Whether this connection may write checkpoints: not to a standby, not for a reader."""
    return bool(
        await tx.fetch_value(
            """
            SELECT current_setting('transaction_read_only') = 'off'
                   AND has_table_privilege('line_checkpoint', 'INSERT, UPDATE, DELETE')
                   AND has_table_privilege('history_checkpoint', 'UPDATE')
            """
        )
    )


async def try_move(tx: Tx) -> bool:
    """Record what this transaction sees as verified, unless somebody else is at it."""
    try:
        async with tx.connection.transaction():
            await _move_lines(tx)
            await _move_history(tx)
    except (asyncpg.SerializationError, asyncpg.LockNotAvailableError):
        return False
    return True


async def _move_lines(tx: Tx) -> None:
    """All of the logs was found in order, so the counters of the lines are the balances."""
    await tx.execute(
        """
        INSERT INTO line_checkpoint AS c (kind, line_id, n, last_seq, enqueued, completed, removed, active, waiting,
                                          paused, recent)
        SELECT 'verified', l.id, l.next_n - 1, l.next_seq - 1, l.total_enqueued, l.total_completed, l.total_removed,
               l.active, l.waiting, l.paused, l.recent
          FROM line l JOIN line_windows('verified') w ON w.line_id = l.id
         ORDER BY l.id
        ON CONFLICT (kind, line_id) DO UPDATE
           SET n = excluded.n, last_seq = excluded.last_seq, enqueued = excluded.enqueued,
               completed = excluded.completed, removed = excluded.removed, active = excluded.active,
               waiting = excluded.waiting, paused = excluded.paused, recent = excluded.recent
        """
    )
    await tx.execute(
        "DELETE FROM line_checkpoint c WHERE kind = 'verified' AND NOT EXISTS (SELECT 1 FROM line WHERE id = c.line_id)"
    )


async def _move_history(tx: Tx) -> None:
    """Verified is what was written before the candidate, once nobody is left who wrote then; then there is a new one.

    Our own number is above those of all who were writing when we began. If it is the lowest that the snapshot does not
    know to be over, there was nobody.
    """
    await tx.execute(
        """
        UPDATE history_checkpoint
           SET verified_at = CASE WHEN s.own = s.lowest THEN now() ELSE candidate_at END,
               candidate_at = now(), candidate_xid = s.own
          FROM (SELECT pg_current_xact_id() AS own, pg_snapshot_xmin(pg_current_snapshot()) AS lowest) s
         WHERE candidate_xid <= s.lowest
        """
    )
