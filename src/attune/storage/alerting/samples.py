"""Rows of `alert_sample`: what looks remember for those that come later."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from attune.domain.alerts.readings import Past, Sample
from attune.storage.tx import Tx

KEPT_SECONDS = 900.0
# A look this much older than the one that is asked for will do.
SLACK_SECONDS = 60.0


async def find_due(tx: Tx, *, seconds: float) -> datetime | None:
    """The present time, if the last look lies this far back."""
    now: datetime | None = await tx.fetch_value(
        """
        SELECT now() WHERE NOT EXISTS (SELECT 1 FROM alert_sample WHERE at > now() - make_interval(secs => $1))
        """,
        seconds,
    )
    return now


async def list_past(tx: Tx, windows: Sequence[float]) -> Mapping[float, Past]:
    """For each number of seconds the look that lies so far back, or a little farther; where there was one."""
    rows = await tx.fetch(
        """
        SELECT w.seconds AS "window", extract(epoch FROM now() - s.at)::float8 AS seconds, s.sample
          FROM unnest($1::float8[]) AS w (seconds)
         CROSS JOIN LATERAL (
            SELECT at, sample FROM alert_sample
             WHERE at <= now() - make_interval(secs => w.seconds)
               AND at >= now() - make_interval(secs => w.seconds + $2)
             ORDER BY at DESC LIMIT 1) s
        """,
        windows,
        SLACK_SECONDS,
    )
    return {row["window"]: Past(seconds=row["seconds"], sample=msgspec.convert(row["sample"], Sample)) for row in rows}


async def insert(tx: Tx, sample: Sample) -> None:
    """Remember this look."""
    await tx.execute("INSERT INTO alert_sample (at, sample) VALUES (now(), $1)", sample)


async def delete_old(tx: Tx) -> None:
    """Forget what nobody will compare with."""
    await tx.execute("DELETE FROM alert_sample WHERE at < now() - make_interval(secs => $1)", KEPT_SECONDS)
