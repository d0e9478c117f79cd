"""Rows of `counter`: what all processes have counted together."""

from collections.abc import Mapping, Sequence

from attune.runtime.counts import Count
from attune.storage.tx import Tx

# Labels have few values, and actions are some hundreds at most, so this is far above what there can be.
COUNTERS_MAX = 20_000


async def add(tx: Tx, counts: Sequence[Count]) -> None:
    """Add to counters; sorted, so that two processes cannot deadlock."""
    await tx.execute(
        """
        INSERT INTO counter AS c (name, labels, value)
        SELECT n.name, n.labels, n.value
          FROM jsonb_to_recordset($1) AS n (name text, labels jsonb, value float8) ORDER BY n.name, n.labels
        ON CONFLICT (name, labels) DO UPDATE SET value = c.value + EXCLUDED.value
        """,
        [{"name": count.name, "labels": dict(count.labels), "value": count.value} for count in counts],
    )


async def list_all(tx: Tx) -> Sequence[Count]:
    """Every counter there is."""
    rows = await tx.fetch("SELECT name, labels, value FROM counter ORDER BY name, labels LIMIT $1", COUNTERS_MAX)
    return [Count(name=row["name"], labels=_labels(row["labels"]), value=row["value"]) for row in rows]


def _labels(stored: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(stored.items()))
