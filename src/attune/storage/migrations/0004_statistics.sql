-- Statistics: totals that survive the lines they were counted in, the history of lines, and counters of all processes.

-- What removed lines had counted, by scope: whoever adds up lines adds this, so that totals never go backwards.
CREATE TABLE line_remainder (
    scope            text PRIMARY KEY,
    total_enqueued   bigint NOT NULL,
    total_completed  bigint NOT NULL,
    total_removed    bigint NOT NULL,
    last_updated     timestamptz NOT NULL
);

-- Since when the oldest of those who wait in a line has waited: one step of the line's index for each priority in use,
-- however many wait.
CREATE FUNCTION oldest_waiting(p_line bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    WITH RECURSIVE head AS (
        (SELECT e.priority, e.enqueued_at FROM attune.line_entry e
          WHERE e.line_id = p_line AND e.state = 'waiting' ORDER BY e.priority DESC, e.seq LIMIT 1)
        UNION ALL
        SELECT n.priority, n.enqueued_at FROM head h CROSS JOIN LATERAL (
            SELECT e.priority, e.enqueued_at FROM attune.line_entry e
             WHERE e.line_id = p_line AND e.state = 'waiting' AND e.priority < h.priority
             ORDER BY e.priority DESC, e.seq LIMIT 1) n)
    SELECT min(enqueued_at) FROM head
$$;

-- Every scope with its counters, over the lines it has and those it had.
CREATE VIEW line_scope AS
SELECT scope,
       count(id) AS lines,
       COALESCE(sum(waiting), 0)::int AS waiting,
       COALESCE(sum(active), 0)::int AS active,
       min(max_concurrent) AS max_concurrent,
       min(oldest) AS oldest_enqueued_at,
       sum(total_enqueued)::bigint AS total_enqueued,
       sum(total_completed)::bigint AS total_completed,
       sum(total_removed)::bigint AS total_removed,
       max(last_updated) AS last_updated
  FROM (SELECT id, scope, waiting, active, max_concurrent,
               -- What `oldest_waiting` does, without the price of calling it for each of ten thousand lines.
               CASE WHEN waiting > 0 THEN (
                   WITH RECURSIVE head AS (
                       (SELECT e.priority, e.enqueued_at FROM line_entry e
                         WHERE e.line_id = line.id AND e.state = 'waiting' ORDER BY e.priority DESC, e.seq LIMIT 1)
                       UNION ALL
                       SELECT n.priority, n.enqueued_at FROM head h CROSS JOIN LATERAL (
                           SELECT e.priority, e.enqueued_at FROM line_entry e
                            WHERE e.line_id = line.id AND e.state = 'waiting' AND e.priority < h.priority
                            ORDER BY e.priority DESC, e.seq LIMIT 1) n)
                   SELECT min(enqueued_at) FROM head) END AS oldest,
               total_enqueued, total_completed, total_removed, last_updated
          FROM line
        UNION ALL
        SELECT NULL, scope, NULL, NULL, NULL, NULL, total_enqueued, total_completed, total_removed, last_updated
          FROM line_remainder) counted
 GROUP BY scope;

CREATE OR REPLACE VIEW queue_stats AS
SELECT substring(scope FROM 'action:(.*)')::bigint AS action_id, waiting AS queue_length, active AS active_count,
       max_concurrent, oldest_enqueued_at, total_enqueued, total_completed, last_updated
  FROM line_scope WHERE scope LIKE 'action:%';

-- One row for each minute in which something happened in the lines of a scope, or somebody stood there. Nothing was
-- ever written to the table it replaces.
DROP TABLE queue_stats_history;
CREATE TABLE queue_stats_history (
    scope            text NOT NULL,
    minute           timestamptz NOT NULL,
    -- From the beginning to the last look in this minute. What happened is the difference to the row before, so that
    -- looking twice, or on two replicas, counts nothing twice.
    total_enqueued   bigint NOT NULL,
    total_admitted   bigint NOT NULL,
    total_completed  bigint NOT NULL,
    total_removed    bigint NOT NULL,
    waiting          int NOT NULL,
    active           int NOT NULL,
    max_concurrent   int,
    -- The most of all looks in this minute.
    waiting_max      int NOT NULL,
    active_max       int NOT NULL,
    oldest_seconds   double precision NOT NULL,
    -- How long those had waited who were admitted in this minute, from a sample.
    waits            int NOT NULL DEFAULT 0,
    wait_mean        double precision,
    wait_max         double precision,
    wait_p50         double precision,
    wait_p95         double precision,
    wait_p99         double precision,
    PRIMARY KEY (scope, minute)
) WITH (fillfactor = 70);
CREATE INDEX ON queue_stats_history (minute);

-- What all processes have counted together; each adds what it counted since it last did.
CREATE TABLE counter (
    name     text NOT NULL,
    labels   jsonb NOT NULL,
    value    double precision NOT NULL,
    PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);

-- An UPDATE that ends an execution and says nothing else, as an operator would type it, is completed here: the time of
-- its end, its worker's room, and the message by which its line goes on. The services set `ended_at` themselves.
-- Who could break the old constraint could not write a row, so what is there need not be looked through.
ALTER TABLE execution DROP CONSTRAINT execution_ended_exactly_in_terminal_states;
ALTER TABLE execution ADD CONSTRAINT execution_ended_only_in_terminal_states
    CHECK (ended_at IS NULL OR status IN ('succeeded', 'failed', 'timeout', 'cancelled')) NOT VALID;

CREATE FUNCTION complete_ends(p_ids bigint[]) RETURNS void LANGUAGE sql AS $$
    UPDATE attune.execution SET ended_at = now(), changed_by = session_user, change_reason = 'ended in the database'
     WHERE id = ANY (p_ids);
    UPDATE attune.execution_history SET actor = session_user, reason = 'ended in the database'
     WHERE execution_id = ANY (p_ids) AND xid = pg_current_xact_id()
       AND to_status IN ('succeeded', 'failed', 'timeout', 'cancelled');
    DELETE FROM attune.assignment WHERE execution_id = ANY (p_ids);
    DELETE FROM attune.unplaced WHERE execution_id = ANY (p_ids);
    INSERT INTO attune.outbox (topic, type, items)
    SELECT 'execution.completed', 'execution.completed', jsonb_build_array(jsonb_build_array(id, attempt))
      FROM attune.execution WHERE id = ANY (p_ids) ORDER BY id;
$$;

CREATE OR REPLACE FUNCTION record_execution_births() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    illegal record;
BEGIN
    INSERT INTO attune.execution_history (execution_id, from_status, to_status, attempt, actor, reason)
    SELECT id, NULL, status, attempt, changed_by, change_reason FROM born;
    SELECT id, status INTO illegal FROM born
     WHERE status <> ALL (attune.legal_births()) OR (ended_at IS NULL AND status IN ('failed', 'cancelled')) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'execution % may not be born as %', illegal.id, illegal.status
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION record_execution_changes() RETURNS trigger LANGUAGE plpgsql SET enable_nestloop = off AS $$
DECLARE
    illegal record;
    unfinished bigint[];
BEGIN
    WITH moved AS (
        INSERT INTO attune.execution_history (execution_id, from_status, to_status, attempt, actor, reason)
        SELECT n.id, o.status, n.status, n.attempt, n.changed_by, n.change_reason
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
    unfinished := ARRAY(SELECT id FROM after
                         WHERE ended_at IS NULL AND status IN ('succeeded', 'failed', 'timeout', 'cancelled'));
    IF unfinished <> '{}' THEN
        PERFORM attune.complete_ends(unfinished);
    END IF;
    RETURN NULL;
END $$;
