-- Workers that come and go: who listens, who is on the way out, who is alive, and which actions take workers down.

-- Told to stop: nothing but a new start of that name makes it take work again.
ALTER TABLE worker ADD COLUMN leaving boolean NOT NULL DEFAULT false;
ALTER TABLE worker ADD COLUMN pinged_at timestamptz;      -- the last ping that was sent
ALTER TABLE worker ADD COLUMN awaited_since timestamptz;  -- the oldest ping that has no answer yet
ALTER TABLE worker ADD COLUMN ponged_at timestamptz;      -- the last answer

-- Accepted while no worker could run it: one has to be there by then. Nearly always empty.
ALTER TABLE execution ADD COLUMN worker_by timestamptz;
CREATE INDEX execution_worker_by ON execution (worker_by) WHERE worker_by IS NOT NULL;

-- The workers that were lost while they ran it, since its last success; at a bound it is quarantined.
ALTER TABLE action ADD COLUMN lost_workers uuid[] NOT NULL DEFAULT '{}';
ALTER TABLE action ADD COLUMN quarantined_at timestamptz;

-- Whether some worker that may be given work could run an action, with or without room.
CREATE OR REPLACE FUNCTION has_candidate(p_action bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM attune.action a, attune.worker w
         WHERE a.id = p_action AND a.quarantined_at IS NULL AND w.status = 'active' AND NOT w.cordoned
           AND w.last_heartbeat + make_interval(secs => 3 * w.heartbeat_interval) >= now()
           AND a.runner = ANY (w.runtimes) AND a.labels <@ w.labels
           AND attune.isolation_level(a.isolation) <= attune.isolation_level(w.isolation))
$$;

-- Whether a worker counts as alive where that decides about failing work: heard of within its staleness and not
-- leaving. One that is cordoned, unresponsive, or just being started again is alive. While the database was away
-- nobody could be heard, so that time does not count.
CREATE FUNCTION is_living(w worker) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT w.status <> 'inactive' AND NOT w.leaving
       AND GREATEST(w.last_heartbeat, CASE WHEN w.status <> 'lost' THEN pg_postmaster_start_time() END)
           + make_interval(secs => 3 * w.heartbeat_interval) >= now()
$$;

CREATE FUNCTION has_living_worker(a action) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT a.runner IN ('workflow', 'inquiry') OR EXISTS (
        SELECT 1 FROM attune.worker w
         WHERE attune.is_living(w) AND a.runner = ANY (w.runtimes) AND a.labels <@ w.labels
           AND attune.isolation_level(a.isolation) <= attune.isolation_level(w.isolation))
$$;
