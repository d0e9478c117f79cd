-- Alerts, one row for each episode, and how many workers pools wanted, one row each time that changed.

CREATE TABLE alert (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL,
    subject      text NOT NULL,  -- line:ID, action:REF, or empty for the whole installation
    severity     text NOT NULL CHECK (severity IN ('warning', 'critical')),
    state        text NOT NULL CHECK (state IN ('pending', 'firing', 'resolved')),
    message      text NOT NULL,
    facts        jsonb NOT NULL,
    since        timestamptz NOT NULL,  -- from when on it was true
    seen_at      timestamptz NOT NULL,  -- when it was last found to be true
    fired_at     timestamptz,
    resolved_at  timestamptz,
    CONSTRAINT alert_fired_unless_pending CHECK ((fired_at IS NULL) = (state = 'pending')),
    CONSTRAINT alert_resolved_has_time CHECK ((resolved_at IS NULL) = (state <> 'resolved'))
) WITH (fillfactor = 70);
-- One open episode about one thing, however many replicas look.
CREATE UNIQUE INDEX uq_alert_open ON alert (name, subject) WHERE state <> 'resolved';
CREATE INDEX alert_resolved ON alert (resolved_at) WHERE resolved_at IS NOT NULL;

-- What each look remembers for those that compare with it; kept for a quarter of an hour.
CREATE TABLE alert_sample (
    at      timestamptz PRIMARY KEY,
    sample  jsonb NOT NULL
);

-- Held actions are few, and looked for all the time.
CREATE INDEX action_quarantined ON action (id) WHERE quarantined_at IS NOT NULL;

CREATE TABLE scaling_change (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool           bigint NOT NULL,
    runner         text NOT NULL,
    labels         jsonb NOT NULL,
    isolation      text,
    wanted_before  int NOT NULL,
    wanted         int NOT NULL,
    backlog        int NOT NULL,
    workers        int NOT NULL,
    at             timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT scaling_change_is_one CHECK (wanted <> wanted_before)
);
CREATE INDEX scaling_change_pool ON scaling_change (pool, id DESC);
