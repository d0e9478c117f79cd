-- Who could run what, asked in one way; parents that wait for the end of their children; work held until its release.

-- Whether a worker has the runtime, the labels and at least the isolation an action asks for; as in domain/placement.py.
CREATE FUNCTION can_run(w worker, a action) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT a.runner = ANY (w.runtimes) AND a.labels <@ w.labels
       AND attune.isolation_level(a.isolation) <= attune.isolation_level(w.isolation)
$$;

-- Whether some worker may be given an action's executions now, with or without room; if not, their line waits.
CREATE OR REPLACE FUNCTION has_candidate(p_action bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM attune.action a, attune.worker w
         WHERE a.id = p_action AND a.quarantined_at IS NULL AND w.status = 'active' AND NOT w.cordoned
           AND w.last_heartbeat + make_interval(secs => 3 * w.heartbeat_interval) >= now()
           AND attune.can_run(w, a))
$$;

-- Whether a worker counts as alive: heard of within three of its intervals and not leaving. One that is just being
-- started again is alive, and so is one that does not answer a ping, for as long as one without heartbeats would be.
-- While the database was away nobody could be heard, so that time does not count for those who were there before.
CREATE OR REPLACE FUNCTION is_living(w worker) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT w.status <> 'inactive' AND NOT w.leaving
       AND GREATEST(CASE WHEN w.status = 'unresponsive' THEN LEAST(w.last_heartbeat, w.awaited_since)
                         ELSE w.last_heartbeat END,
                    CASE WHEN w.status NOT IN ('lost', 'unresponsive') THEN pg_postmaster_start_time() END)
           + make_interval(secs => 3 * w.heartbeat_interval) >= now()
$$;

-- Whether anybody could run an action: a worker that is alive and that nobody has taken out. It decides about failing
-- work, wherever that is done. A quarantine does not count: what is held waits for its release.
CREATE FUNCTION is_served(a action) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT a.runner IN ('workflow', 'inquiry') OR EXISTS (
        SELECT 1 FROM attune.worker w WHERE attune.is_living(w) AND NOT w.cordoned AND attune.can_run(w, a))
$$;
DROP FUNCTION has_living_worker(action);

-- Those above these executions who were asked to stop, as far up as everybody was: the end of a child may be theirs.
CREATE FUNCTION stopping_above(p_ids bigint[]) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    WITH RECURSIVE above AS (
        SELECT p.id, p.parent FROM attune.execution e JOIN attune.execution p ON p.id = e.parent
         WHERE e.id = ANY (p_ids) AND p.status = 'canceling'
        UNION
        SELECT p.id, p.parent FROM above c JOIN attune.execution p ON p.id = c.parent WHERE p.status = 'canceling'
    )
    SELECT id FROM above
$$;

-- When a person let a quarantined action go on: nobody's time in a line ran before.
ALTER TABLE action ADD COLUMN released_at timestamptz;
