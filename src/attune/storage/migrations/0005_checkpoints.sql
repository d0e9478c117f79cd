-- Checkpoints: up to where the logs were verified, and what lines had counted there.
--
-- A check reads what is newer. What retention drops goes into a checkpoint in the same transaction, so that balances
-- stay right.

CREATE TABLE line_checkpoint (
    kind       text NOT NULL CHECK (kind IN ('retained', 'verified')),  -- what was dropped, what was found in order
    line_id    bigint NOT NULL,
    n          bigint NOT NULL DEFAULT 0,  -- the last number of the line's log that is behind the checkpoint
    last_seq   bigint NOT NULL DEFAULT 0,  -- the last place that was given
    enqueued   bigint NOT NULL DEFAULT 0,
    completed  bigint NOT NULL DEFAULT 0,
    removed    bigint NOT NULL DEFAULT 0,
    active     bigint NOT NULL DEFAULT 0,
    waiting    bigint NOT NULL DEFAULT 0,
    paused     boolean NOT NULL DEFAULT false,
    recent     timestamptz[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (kind, line_id)
);

-- Ids of the history are not in the order of commits, so its checkpoint is a time before which nobody writes any more:
-- a candidate counts as soon as every transaction that ran when it was taken is over.
CREATE TABLE history_checkpoint (
    id             int PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    verified_at    timestamptz NOT NULL DEFAULT '2000-01-01Z',
    candidate_at   timestamptz NOT NULL DEFAULT '2000-01-01Z',
    candidate_xid  xid8 NOT NULL DEFAULT '0'
);
INSERT INTO history_checkpoint DEFAULT VALUES;

-- The newest part of a table that only grows; costs an insert next to nothing.
CREATE INDEX execution_history_at ON execution_history USING brin (at) WITH (pages_per_range = 32, autosummarize = on);

-- Every move of the executions that moved since then: what is new may contradict what is old.
CREATE FUNCTION moves_since(p_since timestamptz) RETURNS SETOF execution_history LANGUAGE sql STABLE AS $$
    SELECT h.*
      FROM (SELECT DISTINCT m.execution_id FROM attune.execution_history m WHERE m.at >= p_since) touched
      JOIN attune.execution_history h ON h.execution_id = touched.execution_id
$$;

-- A removed line leaves a mark, so that its last rows are verified like those of every other.
CREATE FUNCTION mark_removed_lines() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO attune.line_checkpoint (kind, line_id)
    SELECT k.kind, g.id FROM gone g CROSS JOIN (VALUES ('retained'), ('verified')) k (kind)
     WHERE g.next_n > 1 ORDER BY k.kind, g.id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER line_removals AFTER DELETE ON line
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION mark_removed_lines();

INSERT INTO line_checkpoint (kind, line_id)
SELECT k.kind, g.line_id
  FROM (SELECT DISTINCT line_id FROM admission_log EXCEPT SELECT id FROM line) g
 CROSS JOIN (VALUES ('retained'), ('verified')) k (kind);

-- The lines whose log goes on behind a checkpoint: how they stood there, and how they stand now. A removed line has no
-- last number, and nobody is in it.
CREATE FUNCTION line_windows(p_kind text)
RETURNS TABLE (line_id bigint, n bigint, last_n bigint, last_seq bigint, enqueued bigint, completed bigint,
               removed bigint, active bigint, waiting bigint, paused boolean, recent timestamptz[],
               enqueued_now bigint, completed_now bigint, removed_now bigint, active_now int, waiting_now int)
LANGUAGE sql STABLE AS $$
    SELECT l.id, COALESCE(c.n, 0), l.next_n - 1, COALESCE(c.last_seq, 0), COALESCE(c.enqueued, 0),
           COALESCE(c.completed, 0), COALESCE(c.removed, 0), COALESCE(c.active, 0), COALESCE(c.waiting, 0),
           COALESCE(c.paused, false), COALESCE(c.recent, '{}'),
           l.total_enqueued, l.total_completed, l.total_removed, l.active, l.waiting
      FROM attune.line l LEFT JOIN attune.line_checkpoint c ON c.line_id = l.id AND c.kind = p_kind
     WHERE l.next_n - 1 > COALESCE(c.n, 0)
    UNION ALL
    SELECT c.line_id, c.n, NULL, c.last_seq, c.enqueued, c.completed, c.removed, c.active, c.waiting, c.paused,
           c.recent, NULL, NULL, NULL, 0, 0
      FROM attune.line_checkpoint c
     WHERE c.kind = p_kind AND NOT EXISTS (SELECT 1 FROM attune.line l WHERE l.id = c.line_id)
$$;

-- The rows of the log behind a checkpoint.
CREATE FUNCTION admissions_since(p_kind text)
RETURNS TABLE (line_id bigint, n bigint, op text, execution_id bigint, seq bigint, priority int, limit_in_force int,
               active int, at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT a.line_id, a.n, a.op, a.execution_id, a.seq, a.priority, a.limit_in_force, a.active, a.at
      FROM attune.line_windows(p_kind) w JOIN attune.admission_log a ON a.line_id = w.line_id AND a.n > w.n
$$;

-- Put what one day's partition of the log says into the checkpoints. Around midnight the numbers of a line and the
-- times of its rows may cross, so whatever precedes the last number of that day is counted, wherever it is stored.
CREATE FUNCTION fold_admissions(p_day date) RETURNS void LANGUAGE sql SET timezone = 'UTC' AS $$
    WITH ends AS (
        SELECT line_id, max(n) AS n FROM attune.admission_log
         WHERE at >= p_day::timestamptz AND at < (p_day + 1)::timestamptz GROUP BY line_id
    ), counted AS (
        SELECT e.line_id, e.n, max(a.seq) FILTER (WHERE a.op IN ('enq', 'rejoin')) AS last_seq,
               count(*) FILTER (WHERE a.op IN ('enq', 'rejoin')) AS joined,
               count(*) FILTER (WHERE a.op = 'admit') AS admitted,
               count(*) FILTER (WHERE a.op = 'release') AS released,
               count(*) FILTER (WHERE a.op = 'remove') AS removed,
               (array_agg(a.op ORDER BY a.n DESC) FILTER (WHERE a.op IN ('pause', 'limit')))[1] AS last_turn
          FROM ends e
          LEFT JOIN attune.line_checkpoint c ON c.kind = 'retained' AND c.line_id = e.line_id
          JOIN attune.admission_log a ON a.line_id = e.line_id AND a.n <= e.n AND a.n > COALESCE(c.n, 0)
                                     AND a.at >= p_day::timestamptz AND a.at < (p_day + 2)::timestamptz
         GROUP BY e.line_id, e.n
    ), retained AS (
        INSERT INTO attune.line_checkpoint AS c
               (kind, line_id, n, last_seq, enqueued, completed, removed, active, waiting, paused)
        SELECT 'retained', line_id, n, COALESCE(last_seq, 0), joined, released, removed, admitted - released,
               joined - admitted - removed, COALESCE(last_turn = 'pause', false)
          FROM counted ORDER BY line_id
        ON CONFLICT (kind, line_id) DO UPDATE
           SET n = excluded.n, last_seq = GREATEST(c.last_seq, excluded.last_seq),
               enqueued = c.enqueued + excluded.enqueued, completed = c.completed + excluded.completed,
               removed = c.removed + excluded.removed, active = c.active + excluded.active,
               waiting = c.waiting + excluded.waiting, recent = '{}',
               paused = COALESCE((SELECT g.last_turn = 'pause' FROM counted g
                                   WHERE g.line_id = excluded.line_id AND g.last_turn IS NOT NULL), c.paused)
        RETURNING c.*
    )
    INSERT INTO attune.line_checkpoint AS c
           (kind, line_id, n, last_seq, enqueued, completed, removed, active, waiting, paused)
    SELECT 'verified', line_id, n, last_seq, enqueued, completed, removed, active, waiting, paused
      FROM retained ORDER BY line_id
    ON CONFLICT (kind, line_id) DO UPDATE
       SET n = excluded.n, last_seq = excluded.last_seq, enqueued = excluded.enqueued,
           completed = excluded.completed, removed = excluded.removed, active = excluded.active,
           waiting = excluded.waiting, paused = excluded.paused, recent = '{}'
     WHERE c.n < excluded.n
$$;

-- Drop the days of history and admissions that ended more than so many days ago. Returns how many were dropped.
CREATE FUNCTION drop_history(p_days int) RETURNS int LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    old record;
    dropped int := 0;
BEGIN
    FOR old IN
        SELECT k.relname AS name, p.relname AS parent, to_date(right(k.relname, 8), 'YYYYMMDD') AS day
          FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
         WHERE i.inhparent IN ('attune.execution_history'::regclass, 'attune.admission_log'::regclass)
           AND k.relname ~ '_[0-9]{8}$' AND to_date(right(k.relname, 8), 'YYYYMMDD') < current_date - p_days
         ORDER BY day, parent
    LOOP
        IF old.parent = 'admission_log' THEN
            PERFORM attune.fold_admissions(old.day);
        END IF;
        EXECUTE format('DROP TABLE attune.%I', old.name);
        dropped := dropped + 1;
    END LOOP;
    IF dropped > 0 THEN
        DELETE FROM attune.line_checkpoint c
         WHERE NOT EXISTS (SELECT 1 FROM attune.line l WHERE l.id = c.line_id)
           AND NOT EXISTS (SELECT 1 FROM attune.admission_log a WHERE a.line_id = c.line_id);
    END IF;
    RETURN dropped;
END $$;
