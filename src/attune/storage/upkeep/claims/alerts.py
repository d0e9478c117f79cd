"""What must be true of alerts."""

from collections.abc import Sequence

from attune.storage.upkeep.claims.invariant import Invariant

ALERTS: Sequence[Invariant] = (
    Invariant(
        name="alert_episodes_apart",
        claim="An alert about one thing fires again only after it was over.",
        statement="""
            SELECT a.name, a.subject, a.id, a.before, a.over::text AS over, a.fired_at::text AS fired_at
              FROM (SELECT name, subject, id, fired_at, lag(id) OVER w AS before,
                           COALESCE(lag(resolved_at) OVER w, 'infinity') AS over
                      FROM alert WHERE fired_at IS NOT NULL
                    WINDOW w AS (PARTITION BY name, subject ORDER BY id)) a
             WHERE a.before IS NOT NULL AND a.fired_at < a.over
        """,
    ),
)
