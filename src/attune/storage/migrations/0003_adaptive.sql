-- Limits that move by themselves, slots used by descendants, and a queue timeout that a pause holds up.

-- The limit in force is `max_concurrent`, whoever chose it: the policy, or what was learned between its bounds.
ALTER TABLE line DROP COLUMN adaptive_limit;
ALTER TABLE line
    ADD COLUMN limit_reason   text,         -- why the limit in force is what it is; NULL: it never changed
    ADD COLUMN adapted_n      bigint,       -- the log from this number on is the window of the next decision; NULL: a fixed limit
    ADD COLUMN adapted_at     timestamptz,  -- who started earlier ran under another limit and tells nothing about this one
    ADD COLUMN adapted_total  bigint,       -- of `total_completed`, what need not be looked at again
    ADD COLUMN best_seconds   double precision,
    ADD COLUMN resumed_at     timestamptz;
ALTER TABLE admission_log ADD COLUMN reason text;

-- Whose slot it uses instead of waiting for one of its own.
ALTER TABLE execution ADD COLUMN inherits bigint;

-- The queue timeout counts from here. A pause moves it, lazily: the sweep meets each entry once in a timeout's time.
ALTER TABLE line_entry ADD COLUMN timeout_from timestamptz NOT NULL DEFAULT now();
UPDATE line_entry SET timeout_from = enqueued_at;
DROP INDEX line_entry_enqueued;
CREATE INDEX line_entry_timeout ON line_entry (timeout_from) WHERE state = 'waiting';

-- Whose policies apply to an action. A workflow obeys only its own: wider limits count what a worker runs, and with a
-- slot of its own it would keep those it waits for from theirs. An inquiry waits for a person and takes nobody's place.
CREATE FUNCTION governing_scopes(p_action bigint, p_pack bigint, p_runner text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE p_runner WHEN 'inquiry' THEN '{}'
                         WHEN 'workflow' THEN ARRAY['action:' || p_action]
                         ELSE ARRAY['action:' || p_action, 'pack:' || p_pack, 'global'] END
$$;

-- Where an adaptive limit begins. What the best latency is can only be learned from below.
CREATE FUNCTION starting_limit(p_limit int, p_adaptive jsonb) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN p_adaptive IS NULL THEN p_limit
                WHEN p_adaptive ->> 'target' IS NULL THEN (p_adaptive ->> 'min')::int
                ELSE LEAST((p_adaptive ->> 'max')::int, GREATEST((p_adaptive ->> 'min')::int, p_limit)) END
$$;

-- Copy limits that changed in a policy to the lines it governs, and log it. A limit that moves by itself stays where it
-- is between its bounds. A deleted policy drains its line unlimited.
CREATE OR REPLACE FUNCTION follow_policies(p_lines bigint[]) RETURNS void LANGUAGE sql AS $$
    WITH wanted AS (
        SELECT k.id, p.adaptive IS NOT NULL AS adapts, k.adapted_n IS NOT NULL AS adapted,
               CASE WHEN p.adaptive IS NULL OR k.adapted_n IS NULL
                    THEN attune.starting_limit(p.max_concurrent, p.adaptive)
                    ELSE LEAST((p.adaptive ->> 'max')::int, GREATEST((p.adaptive ->> 'min')::int, k.max_concurrent))
                    END AS max_concurrent,
               CASE WHEN p.id IS NULL THEN 'no policy governs it any more'
                    WHEN p.adaptive IS NULL THEN 'policy ' || p.ref
                    ELSE format('policy %s: between %s and %s', p.ref, p.adaptive ->> 'min', p.adaptive ->> 'max')
                    END AS reason
          FROM attune.line k LEFT JOIN attune.policy p ON p.id = k.policy_id AND p.enabled
         WHERE k.id = ANY (p_lines)
    ), changed AS (
        UPDATE attune.line l
           SET max_concurrent = w.max_concurrent, limit_reason = w.reason, next_n = l.next_n + 1, last_updated = now(),
               adapted_n = CASE WHEN w.adapts THEN l.next_n + 1 END,
               adapted_at = CASE WHEN w.adapts THEN clock_timestamp() END,
               adapted_total = CASE WHEN w.adapts THEN l.total_completed END,
               best_seconds = CASE WHEN w.adapts THEN l.best_seconds END
          FROM wanted w
         WHERE l.id = w.id AND (w.max_concurrent IS DISTINCT FROM l.max_concurrent OR w.adapts <> w.adapted)
        RETURNING l.id, l.next_n - 1 AS n, l.max_concurrent, l.active, l.limit_reason
    )
    INSERT INTO attune.admission_log (line_id, n, op, limit_in_force, active, reason)
    SELECT id, n, 'limit', max_concurrent, active, limit_reason FROM changed
$$;
