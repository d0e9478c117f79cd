-- Fewer steps for what happens to every execution: what was asked in several statements is asked in one, and what most
-- lines need no answer to is not asked.

-- Lock executions that may end, or be tried again, with everything such an end touches, in the one order there is: the
-- lines whose slots they may give back, then themselves with whoever above them was asked to stop, then their leases.
CREATE FUNCTION lock_ending(p_ids bigint[])
RETURNS TABLE (id bigint, action bigint, status text, attempt int, tries int, max_attempts int, priority int,
               placements int, pinned boolean, worker bigint, line_id bigint, pool bigint, retry jsonb,
               idempotent boolean, on_worker_lost text, suspect boolean, held_attempt int, lease uuid)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM attune.line l
      WHERE l.id = ANY (ARRAY(SELECT e.line_id FROM attune.line_entry e WHERE e.execution_id = ANY (p_ids)))
      ORDER BY l.id FOR NO KEY UPDATE;
    PERFORM 1 FROM attune.execution e
      WHERE e.id = ANY (p_ids || ARRAY(SELECT attune.stopping_above(p_ids))) AND e.ended_at IS NULL
      ORDER BY e.id FOR NO KEY UPDATE;
    -- What is read below is read after the locks were got.
    RETURN QUERY
    SELECT e.id, e.action, e.status, e.attempt, e.tries, e.max_attempts, e.priority, e.placements, e.pinned, e.worker,
           e.line_id, a.pool, a.retry, a.idempotent, a.on_worker_lost, a.lost_workers <> '{}', h.attempt, h.lease
      FROM attune.execution e JOIN attune.action a ON a.id = e.action
      LEFT JOIN (SELECT s.execution_id, s.attempt, s.lease FROM attune.assignment s
                  WHERE s.execution_id = ANY (p_ids) AND s.started_at IS NOT NULL
                  ORDER BY s.execution_id FOR UPDATE) h ON h.execution_id = e.id
     WHERE e.id = ANY (p_ids) AND e.ended_at IS NULL;
END $$;

-- However many actions there are.
CREATE INDEX action_pool ON action (pool);

-- Let one transaction at a time place a pool, and then tell what its actions ask for, whether somebody waits who could
-- be placed, and which workers may be given work; a pool without workers is one row without a worker.
-- FOR KEY SHARE holds off a drain until the placement commits, and nothing else.
CREATE FUNCTION open_pool(p_pool bigint, p_stale_intervals float8, p_avoided_seconds float8)
RETURNS TABLE (runner text, labels jsonb, isolation text, quarantined bigint[], awaited boolean, worker_id bigint,
               instance uuid, worker_runtimes text[], worker_labels jsonb, worker_isolation text, capacity int,
               load bigint, avoided boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock(p_pool);
    RETURN QUERY
    WITH pool AS MATERIALIZED (
        -- All of a pool ask for the same.
        SELECT a.runner, a.labels, a.isolation,
               ARRAY(SELECT q.id FROM attune.action q WHERE q.pool = p_pool AND q.quarantined_at IS NOT NULL)
               AS quarantined
          FROM attune.action a WHERE a.pool = p_pool LIMIT 1
    ), candidate AS MATERIALIZED (
        SELECT w.id, w.instance, w.runtimes, w.labels, w.isolation, w.capacity
          FROM attune.worker w
         WHERE w.status = 'active' AND NOT w.cordoned AND NOT w.marked_full
           AND w.last_heartbeat + make_interval(secs => p_stale_intervals * w.heartbeat_interval) >= now()
         ORDER BY w.id FOR KEY SHARE OF w
    )
    SELECT p.runner, p.labels, p.isolation, p.quarantined,
           EXISTS (SELECT 1 FROM attune.unplaced u WHERE u.pool = p_pool AND u.action_id <> ALL (p.quarantined)),
           c.id, c.instance, c.runtimes, c.labels, c.isolation, c.capacity,
           (SELECT count(*) FROM attune.assignment s WHERE s.worker_id = c.id),
           EXISTS (SELECT 1 FROM attune.dead_letter d WHERE d.worker_instance = c.instance
                      AND d.parked_at > now() - make_interval(secs => p_avoided_seconds))
      FROM pool p LEFT JOIN candidate c ON true;
END $$;

-- As before; what few lines need is done for those few: a limit that changed, a hold, a rate.
CREATE OR REPLACE FUNCTION admit_lines(p_lines bigint[], p_ended bigint[], p_max int)
RETURNS TABLE (line_id bigint, execution_id bigint, attempt int, action_id bigint, priority int, pool bigint,
               wake_seconds float8)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids bigint[];
    differing bigint[];
    limited bigint[];
    any_held boolean;
    unsettled bigint[];
    picked bigint[];
    alive bigint[];
    clock timestamptz;
    bounded boolean := false;
BEGIN
    ids := ARRAY(SELECT id FROM unnest(p_lines) AS id
                 UNION SELECT e.line_id FROM attune.line_entry e WHERE e.execution_id = ANY (p_ended));
    IF ids = '{}' THEN
        RETURN;
    END IF;
    PERFORM 1 FROM attune.line l WHERE l.id = ANY (ids) ORDER BY l.id FOR NO KEY UPDATE;
    clock := clock_timestamp();
    IF p_ended <> '{}' THEN
        PERFORM attune.release_entries(p_ended);
    END IF;
    SELECT array_agg(l.id) FILTER (WHERE p.adaptive IS NOT NULL OR l.adapted_n IS NOT NULL
                                      OR p.max_concurrent IS DISTINCT FROM l.max_concurrent),
           array_agg(l.id) FILTER (WHERE p.rate_limit IS NOT NULL), bool_or(l.held)
      INTO differing, limited, any_held
      FROM attune.line l LEFT JOIN attune.policy p ON p.id = l.policy_id AND p.enabled WHERE l.id = ANY (ids);
    IF differing IS NOT NULL THEN
        PERFORM attune.follow_policies(differing);
    END IF;
    IF any_held THEN
        UPDATE attune.line l SET held = false WHERE l.id = ANY (ids) AND l.held;
    END IF;

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
        bounded := bounded OR cardinality(picked) >= p_max OR round = 5;
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
    IF limited IS NOT NULL THEN
        RETURN QUERY SELECT * FROM attune.wake_rate_limited(limited, clock);
    END IF;
    -- Whoever stopped before the bound of a step has nobody left, or no slot, or is held.
    IF bounded THEN
        RETURN QUERY SELECT * FROM attune.wake_unfinished(ids, clock);
    END IF;
END $$;

-- As before; who could run an action is asked once for each action, not for each of its executions.
CREATE OR REPLACE FUNCTION activate_entries(p_alive bigint[], p_clock timestamptz)
RETURNS TABLE (line_id bigint, execution_id bigint, attempt int, action_id bigint, priority int, pool bigint,
               wake_seconds float8)
LANGUAGE sql AS $$
    WITH capable AS MATERIALIZED (
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

-- As before, and: a worker that passes a slot on to itself places and starts the next in one move. The history shows the
-- two moves that it is.
CREATE OR REPLACE FUNCTION record_execution_changes() RETURNS trigger LANGUAGE plpgsql SET enable_nestloop = off AS $$
DECLARE
    illegal record;
    unfinished bigint[];
    any_started boolean;
BEGIN
    WITH moved AS (
        INSERT INTO attune.execution_history (execution_id, from_status, to_status, attempt, actor, reason)
        SELECT n.id, o.status,
               CASE WHEN o.status <> 'scheduled' AND n.status = 'running' AND n.attempt > o.attempt THEN 'scheduled'
                    ELSE n.status END,
               n.attempt, n.changed_by, n.change_reason
          FROM before o JOIN after n ON n.id = o.id
         WHERE n.status <> o.status OR n.attempt <> o.attempt
        RETURNING execution_id, from_status, to_status
    )
    SELECT execution_id, from_status, to_status INTO illegal
      FROM moved WHERE from_status || '>' || to_status <> ALL (attune.legal_moves()) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'execution % may not move from % to %',
            illegal.execution_id, illegal.from_status, illegal.to_status
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    SELECT array_agg(id) FILTER (WHERE ended_at IS NULL AND status IN ('succeeded', 'failed', 'timeout', 'cancelled')),
           bool_or(status = 'running')
      INTO unfinished, any_started FROM after;
    IF any_started THEN
        INSERT INTO attune.execution_history (execution_id, from_status, to_status, attempt, actor, reason)
        SELECT n.id, 'scheduled', 'running', n.attempt, n.changed_by, n.change_reason
          FROM before o JOIN after n ON n.id = o.id
         WHERE o.status <> 'scheduled' AND n.status = 'running' AND n.attempt > o.attempt;
    END IF;
    IF unfinished IS NOT NULL THEN
        PERFORM attune.complete_ends(unfinished);
    END IF;
    RETURN NULL;
END $$;
