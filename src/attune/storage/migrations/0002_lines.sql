-- Admission: who leaves a line when slots are free.
--
-- `domain/admission.py` is the executable specification of `admit_lines`; a test keeps the two equal.

-- A head that no living worker could run holds its line; whoever makes a worker available wakes held lines.
ALTER TABLE line ADD COLUMN held boolean NOT NULL DEFAULT false;
CREATE INDEX line_held ON line (id) WHERE held;
-- When the last executions were admitted, for a rate limit: at most `max` of them within any window.
ALTER TABLE line ADD COLUMN recent timestamptz[] NOT NULL DEFAULT '{}';

CREATE FUNCTION isolation_level(name text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT COALESCE(array_position(ARRAY['none', 'user', 'namespace', 'container'], name), 0)
$$;

-- Whether some worker that is alive could run an action, with or without room.
CREATE FUNCTION has_candidate(p_action bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM attune.action a, attune.worker w
         WHERE a.id = p_action AND w.status = 'active' AND NOT w.cordoned
           AND w.last_heartbeat + make_interval(secs => 3 * w.heartbeat_interval) >= now()
           AND a.runner = ANY (w.runtimes) AND a.labels <@ w.labels
           AND attune.isolation_level(a.isolation) <= attune.isolation_level(w.isolation))
$$;

-- Give back what ended executions held, in whatever state their entry is, and log it. The lines are locked.
CREATE FUNCTION release_entries(p_ended bigint[]) RETURNS void LANGUAGE sql AS $$
    WITH gone AS (
        DELETE FROM attune.line_entry e USING attune.execution x
         WHERE e.execution_id = ANY (p_ended) AND x.id = e.execution_id
           AND (x.ended_at IS NOT NULL OR x.status = 'requested')  -- ended, or waits outside for a delayed retry
        RETURNING e.line_id, e.execution_id, e.seq, e.priority, e.state
    ), counted AS (
        SELECT line_id, count(*) FILTER (WHERE state = 'active') AS active,
               count(*) FILTER (WHERE state = 'waiting') AS waiting
          FROM gone GROUP BY line_id
    ), changed AS (
        UPDATE attune.line l
           SET active = l.active - c.active, waiting = l.waiting - c.waiting,
               total_completed = l.total_completed + c.active, total_removed = l.total_removed + c.waiting,
               next_n = l.next_n + c.active + c.waiting, last_updated = now()
          FROM counted c WHERE l.id = c.line_id
        RETURNING l.id, l.next_n - c.active - c.waiting AS first_n, l.active + c.active AS active_before,
                  l.max_concurrent
    )
    INSERT INTO attune.admission_log (line_id, n, op, execution_id, seq, priority, limit_in_force, active)
    SELECT g.line_id, c.first_n + row_number() OVER w - 1,
           CASE g.state WHEN 'active' THEN 'release' ELSE 'remove' END,
           g.execution_id, g.seq, g.priority, c.max_concurrent,
           c.active_before - count(*) FILTER (WHERE g.state = 'active') OVER w
      FROM gone g JOIN changed c ON c.id = g.line_id
    WINDOW w AS (PARTITION BY g.line_id ORDER BY g.seq ROWS UNBOUNDED PRECEDING)
$$;

-- Copy limits that changed in a policy to the lines it governs, and log it. A deleted policy drains its line unlimited.
CREATE FUNCTION follow_policies(p_lines bigint[]) RETURNS void LANGUAGE sql AS $$
    WITH changed AS (
        UPDATE attune.line l
           SET max_concurrent = p.max_concurrent, next_n = l.next_n + 1, last_updated = now()
          FROM attune.line k LEFT JOIN attune.policy p ON p.id = k.policy_id AND p.enabled
         WHERE k.id = l.id AND l.id = ANY (p_lines) AND p.max_concurrent IS DISTINCT FROM l.max_concurrent
        RETURNING l.id, l.next_n - 1 AS n, l.max_concurrent, l.active
    )
    INSERT INTO attune.admission_log (line_id, n, op, limit_in_force, active)
    SELECT id, n, 'limit', max_concurrent, active FROM changed
$$;

-- How many of the last admissions lie within the window.
CREATE FUNCTION count_recent(recent timestamptz[], window_seconds float8, clock timestamptz) RETURNS int
LANGUAGE sql IMMUTABLE AS $$
    SELECT count(*)::int FROM unnest(recent) AS at WHERE at > clock - make_interval(secs => window_seconds)
$$;

-- How many each line may admit now: what its limit and its rate leave free, never more than `p_max`.
CREATE FUNCTION free_slots(p_lines bigint[], p_max int, p_clock timestamptz)
RETURNS TABLE (line_id bigint, slots int) LANGUAGE sql STABLE AS $$
    SELECT l.id, GREATEST(0, LEAST(p_max, l.max_concurrent - l.active,
                                   CASE WHEN p.rate_limit ->> 'method' = 'delay'
                                        THEN (p.rate_limit ->> 'max')::int - attune.count_recent(
                                             l.recent, (p.rate_limit ->> 'window_seconds')::float8, p_clock) END))
      FROM attune.line l LEFT JOIN attune.policy p ON p.id = l.policy_id AND p.enabled
     WHERE l.id = ANY (p_lines) AND NOT l.paused
$$;

-- One step for a batch of lines: release, then admit. Returns what was admitted (still `queued`, locked, to be placed
-- in this transaction), and for a line that has to be looked at again a row without execution and with its delay.
CREATE FUNCTION admit_lines(p_lines bigint[], p_ended bigint[], p_max int)
RETURNS TABLE (line_id bigint, execution_id bigint, attempt int, action_id bigint, priority int, pool bigint,
               wake_seconds float8)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    unsettled bigint[];
    picked bigint[];
    alive bigint[];
    clock timestamptz;
BEGIN
    SELECT array_agg(id ORDER BY id) INTO ids FROM (
        SELECT unnest(p_lines) AS id
        UNION SELECT e.line_id FROM attune.line_entry e WHERE e.execution_id = ANY (p_ended)) wanted;
    IF ids IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM attune.line l WHERE l.id = ANY (ids) ORDER BY l.id FOR NO KEY UPDATE;
    clock := clock_timestamp();
    PERFORM attune.release_entries(p_ended);
    PERFORM attune.follow_policies(ids);
    UPDATE attune.line l SET held = false WHERE l.id = ANY (ids) AND l.held;

    -- Cancelled heads leave room for the next; a few rounds find it, and the next step the rest.
    unsettled := ids;
    FOR round IN 1..5 LOOP
        picked := ARRAY(
            SELECT h.execution_id
              FROM attune.free_slots(unsettled, p_max, clock) s
             CROSS JOIN LATERAL (
                SELECT e.execution_id FROM attune.line_entry e
                 WHERE e.line_id = s.line_id AND e.state = 'waiting'
                 ORDER BY e.priority DESC, e.seq LIMIT s.slots) h);
        EXIT WHEN picked = '{}';
        PERFORM 1 FROM attune.execution x WHERE x.id = ANY (picked) ORDER BY x.id FOR NO KEY UPDATE;
        alive := ARRAY(SELECT x.id FROM attune.execution x WHERE x.id = ANY (picked) AND x.status = 'queued');
        unsettled := '{}';
        IF cardinality(alive) < cardinality(picked) THEN
            -- Those that ended leave before others are let past them, so that the log shows no one overtaken.
            unsettled := ARRAY(SELECT DISTINCT e.line_id FROM attune.line_entry e
                                WHERE e.execution_id IN (SELECT unnest(picked) EXCEPT SELECT unnest(alive)));
            PERFORM attune.release_entries(picked);
        END IF;
        RETURN QUERY SELECT * FROM attune.activate_entries(alive, clock);
        EXIT WHEN unsettled = '{}';
    END LOOP;
    RETURN QUERY SELECT * FROM attune.wake_rate_limited(ids, clock);
    RETURN QUERY SELECT * FROM attune.wake_unfinished(ids, clock);
END $$;

-- Activate heads that are alive, up to the first in each line that no living worker could run.
CREATE FUNCTION activate_entries(p_alive bigint[], p_clock timestamptz)
RETURNS TABLE (line_id bigint, execution_id bigint, attempt int, action_id bigint, priority int, pool bigint,
               wake_seconds float8)
LANGUAGE sql AS $$
    WITH capable AS (
        SELECT a.id, a.pool, attune.has_candidate(a.id) AS ok
          FROM attune.action a
         WHERE a.id IN (SELECT e.action_id FROM attune.line_entry e WHERE e.execution_id = ANY (p_alive))
    ), heads AS (
        SELECT e.execution_id, e.line_id, e.seq, e.priority, e.action_id, c.pool,
               bool_and(COALESCE(c.ok, false)) OVER (PARTITION BY e.line_id ORDER BY e.priority DESC, e.seq) AS ok
          FROM attune.line_entry e LEFT JOIN capable c ON c.id = e.action_id
         WHERE e.execution_id = ANY (p_alive) AND e.state = 'waiting'
    ), counted AS (
        SELECT line_id, count(*) FILTER (WHERE ok) AS admitted, bool_or(NOT ok) AS held FROM heads GROUP BY line_id
    ), changed AS (
        UPDATE attune.line l
           SET active = l.active + c.admitted, waiting = l.waiting - c.admitted, next_n = l.next_n + c.admitted,
               held = c.held, last_updated = now(),
               recent = CASE WHEN p.rate_limit ->> 'method' = 'delay'
                             THEN (array_fill(p_clock, ARRAY[c.admitted::int]) || l.recent)
                                  [1 : (p.rate_limit ->> 'max')::int]
                             ELSE l.recent END
          FROM counted c JOIN attune.line k ON k.id = c.line_id
          LEFT JOIN attune.policy p ON p.id = k.policy_id AND p.enabled
         WHERE l.id = c.line_id
        RETURNING l.id, l.next_n - c.admitted AS first_n, l.active - c.admitted AS active_before, l.max_concurrent
    ), activated AS (
        UPDATE attune.line_entry e SET state = 'active', activated_at = p_clock
          FROM heads h WHERE e.execution_id = h.execution_id AND h.ok
        RETURNING e.execution_id
    ), logged AS (
        INSERT INTO attune.admission_log (line_id, n, op, execution_id, seq, priority, limit_in_force, active, at)
        SELECT h.line_id, c.first_n + row_number() OVER w - 1, 'admit', h.execution_id, h.seq, h.priority,
               c.max_concurrent, c.active_before + row_number() OVER w, p_clock
          FROM heads h JOIN changed c ON c.id = h.line_id WHERE h.ok
        WINDOW w AS (PARTITION BY h.line_id ORDER BY h.priority DESC, h.seq)
    )
    SELECT h.line_id, h.execution_id, x.attempt, h.action_id, h.priority, h.pool, NULL::float8
      FROM heads h JOIN attune.execution x ON x.id = h.execution_id WHERE h.ok
$$;

-- Lines that could admit but for their rate limit: one wake-up each, when the oldest admission leaves the window.
CREATE FUNCTION wake_rate_limited(p_lines bigint[], p_clock timestamptz)
RETURNS TABLE (line_id bigint, execution_id bigint, attempt int, action_id bigint, priority int, pool bigint,
               wake_seconds float8)
LANGUAGE sql AS $$
    WITH due AS (
        SELECT l.id, l.recent[(p.rate_limit ->> 'max')::int]
                     + make_interval(secs => (p.rate_limit ->> 'window_seconds')::float8) AS at
          FROM attune.line l JOIN attune.policy p ON p.id = l.policy_id AND p.enabled
         WHERE l.id = ANY (p_lines) AND p.rate_limit ->> 'method' = 'delay' AND NOT l.paused AND l.waiting > 0
           AND (l.max_concurrent IS NULL OR l.active < l.max_concurrent)
    ), woken AS (
        UPDATE attune.line l SET wake_at = d.at FROM due d
         WHERE l.id = d.id AND d.at > p_clock AND (l.wake_at IS NULL OR l.wake_at <= p_clock OR l.wake_at > d.at)
        RETURNING l.id, l.wake_at
    )
    SELECT id, NULL::bigint, NULL::int, NULL::bigint, NULL::int, NULL::bigint,
           extract(epoch FROM wake_at - p_clock)::float8 + 0.01
      FROM woken
$$;

-- Lines that stopped at the bound of a step though they could go on: they are looked at again at once, because no
-- other message need ever come for them.
CREATE FUNCTION wake_unfinished(p_lines bigint[], p_clock timestamptz)
RETURNS TABLE (line_id bigint, execution_id bigint, attempt int, action_id bigint, priority int, pool bigint,
               wake_seconds float8)
LANGUAGE sql AS $$
    SELECT s.line_id, NULL::bigint, NULL::int, NULL::bigint, NULL::int, NULL::bigint, 0::float8
      FROM attune.free_slots(p_lines, 1, p_clock) s JOIN attune.line l ON l.id = s.line_id
     WHERE s.slots > 0 AND l.waiting > 0 AND NOT l.held
$$;
