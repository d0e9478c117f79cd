-- The tables every capability stands on.
--
-- Hot tables have no foreign keys to hot rows: each costs half an insert. Indexes on hot tables are throughput
-- decisions and say why they are there. No index mentions `status`, so that a move of status stays on its page.

CREATE TABLE installation (
    id         int PRIMARY KEY DEFAULT 1 CHECK (id = 1),
    key_check  bytea NOT NULL,  -- sealed with the installation's key: a wrong key file is noticed at start
    created    timestamptz NOT NULL DEFAULT now()
);

-- What changed, for receivers who keep a copy: they read again when a number grew.
CREATE TABLE revision (
    entity    text PRIMARY KEY,
    revision  bigint NOT NULL DEFAULT 0,
    updated   timestamptz NOT NULL DEFAULT now()
);

---------------------------------------------------------------------------------------------------- definitions

CREATE TABLE pack (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ref            text NOT NULL UNIQUE,
    label          text NOT NULL DEFAULT '',
    description    text NOT NULL DEFAULT '',
    version        text NOT NULL,
    config_schema  jsonb NOT NULL DEFAULT '{}',
    config         jsonb NOT NULL DEFAULT '{}',
    source         text NOT NULL DEFAULT '',
    digest         text NOT NULL,
    enabled        boolean NOT NULL DEFAULT true,
    created        timestamptz NOT NULL DEFAULT now(),
    updated        timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE action (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ref                 text NOT NULL UNIQUE,
    pack                bigint NOT NULL REFERENCES pack (id) ON DELETE CASCADE,
    label               text NOT NULL DEFAULT '',
    description         text NOT NULL DEFAULT '',
    runner              text NOT NULL
                        CHECK (runner IN ('shell', 'python', 'node', 'container', 'http', 'native', 'workflow', 'inquiry')),
    entry_point         text,
    command             text,
    command_from        text,
    parameters          jsonb NOT NULL DEFAULT '{}',
    output              jsonb,
    parameter_delivery  text NOT NULL DEFAULT 'stdin' CHECK (parameter_delivery IN ('stdin', 'file')),
    parameter_format    text NOT NULL DEFAULT 'json' CHECK (parameter_format IN ('json', 'yaml', 'dotenv')),
    output_format       text NOT NULL DEFAULT 'text' CHECK (output_format IN ('text', 'json', 'yaml', 'jsonl')),
    timeout_seconds     double precision NOT NULL DEFAULT 600 CHECK (timeout_seconds > 0),
    retry               jsonb NOT NULL DEFAULT '{}',
    idempotent          boolean NOT NULL DEFAULT false,
    on_worker_lost      text CHECK (on_worker_lost IN ('retry', 'fail')),
    labels              jsonb NOT NULL DEFAULT '{}',
    isolation           text CHECK (isolation IN ('none', 'user', 'namespace', 'container')),
    pool                bigint NOT NULL,  -- hash of runner, labels and isolation: who needs the same kind of worker
    adhoc               boolean NOT NULL DEFAULT false,  -- created through the API; a pack's upgrade leaves it alone
    enabled             boolean NOT NULL DEFAULT true,
    created             timestamptz NOT NULL DEFAULT now(),
    updated             timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON action (pack);

CREATE TABLE policy (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ref                    text NOT NULL UNIQUE,
    pack                   bigint REFERENCES pack (id) ON DELETE CASCADE,
    label                  text NOT NULL DEFAULT '',
    description            text NOT NULL DEFAULT '',
    scope                  text NOT NULL,  -- action:<id>, pack:<id> or global
    max_concurrent         int CHECK (max_concurrent >= 1),
    method                 text NOT NULL DEFAULT 'enqueue' CHECK (method IN ('enqueue', 'cancel')),
    parameters             text[] NOT NULL DEFAULT '{}',
    on_retry               text NOT NULL DEFAULT 'front' CHECK (on_retry IN ('front', 'back')),
    adaptive               jsonb,
    rate_limit             jsonb,
    quota                  jsonb,
    max_queue_length       int CHECK (max_queue_length >= 0),
    queue_timeout_seconds  double precision CHECK (queue_timeout_seconds > 0),
    priority               int NOT NULL DEFAULT 0,
    adhoc                  boolean NOT NULL DEFAULT false,
    enabled                boolean NOT NULL DEFAULT true,
    revision               bigint NOT NULL DEFAULT 1,
    created                timestamptz NOT NULL DEFAULT now(),
    updated                timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON policy (scope);

----------------------------------------------------------------------------------------------------- executions

CREATE TABLE execution (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action            bigint NOT NULL,
    action_ref        text NOT NULL,
    pack_version      text NOT NULL DEFAULT '',
    runner            text NOT NULL,
    parameters        jsonb NOT NULL DEFAULT '{}',
    status            text NOT NULL
                      CHECK (status IN ('requested', 'queued', 'scheduling', 'scheduled', 'running', 'waiting',
                                        'canceling', 'succeeded', 'failed', 'timeout', 'cancelled')),
    priority          int NOT NULL DEFAULT 0,
    parent            bigint,
    enforcement       bigint,
    workflow_task     jsonb,
    original          bigint,
    identity          bigint,
    executor          text,
    worker            bigint,
    pinned            boolean NOT NULL DEFAULT false,
    attempt           int NOT NULL DEFAULT 0,
    tries             int NOT NULL DEFAULT 0,
    max_attempts      int NOT NULL DEFAULT 1,
    placements        int NOT NULL DEFAULT 0,
    timeout_seconds   double precision NOT NULL DEFAULT 600,
    not_before        timestamptz,
    cancel_requested  boolean NOT NULL DEFAULT false,
    line_id           bigint,
    line_seq          bigint,
    trace_tag         text,
    traceparent       text,
    result            jsonb,
    error             jsonb,
    changed_by        text NOT NULL DEFAULT '',
    change_reason     text NOT NULL DEFAULT '',
    created           timestamptz NOT NULL DEFAULT now(),
    updated           timestamptz NOT NULL DEFAULT now(),
    queued_at         timestamptz,
    scheduled_at      timestamptz,
    started_at        timestamptz,
    ended_at          timestamptz,
    CONSTRAINT execution_ended_exactly_in_terminal_states
        CHECK ((ended_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'timeout', 'cancelled')))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The live ones, for the state audit: stays as small as the backlog.
CREATE INDEX execution_live ON execution (id) WHERE ended_at IS NULL;
-- Delayed starts and retries; nearly empty.
CREATE INDEX execution_not_before ON execution (not_before) WHERE not_before IS NOT NULL;
-- One execution per enforcement; re-runs and children carry other columns.
CREATE UNIQUE INDEX uq_execution_enforcement ON execution (enforcement)
    WHERE enforcement IS NOT NULL AND parent IS NULL AND original IS NULL;
-- Children of a parent and executions of one trace: partial, so that plain executions do not pay.
CREATE INDEX execution_parent ON execution (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX execution_trace_tag ON execution (trace_tag, id) WHERE trace_tag IS NOT NULL;

CREATE TABLE execution_history (
    id            bigint GENERATED ALWAYS AS IDENTITY,
    execution_id  bigint NOT NULL,
    from_status   text,
    to_status     text NOT NULL,
    attempt       int NOT NULL,
    actor         text NOT NULL,
    reason        text NOT NULL,
    at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    xid           xid8 NOT NULL DEFAULT pg_current_xact_id()
) PARTITION BY RANGE (at);
CREATE INDEX ON execution_history (execution_id, id);

CREATE FUNCTION legal_moves() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        'requested>queued', 'requested>scheduling', 'requested>scheduled', 'requested>running', 'requested>waiting', 'requested>failed', 'requested>cancelled',
        'queued>scheduling', 'queued>scheduled', 'queued>running', 'queued>failed', 'queued>cancelled',
        'scheduling>scheduled', 'scheduling>running', 'scheduling>failed', 'scheduling>cancelled',
        'scheduled>scheduling', 'scheduled>scheduled', 'scheduled>running', 'scheduled>failed', 'scheduled>cancelled',
        'running>requested', 'running>scheduling', 'running>canceling', 'running>succeeded', 'running>failed', 'running>timeout', 'running>cancelled',
        'waiting>succeeded', 'waiting>failed', 'waiting>timeout', 'waiting>cancelled',
        'canceling>succeeded', 'canceling>failed', 'canceling>timeout', 'canceling>cancelled'
    ]
$$;

CREATE FUNCTION legal_births() RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY['requested', 'queued', 'waiting', 'failed', 'cancelled']
$$;

CREATE FUNCTION record_execution_births() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    illegal record;
BEGIN
    INSERT INTO attune.execution_history (execution_id, from_status, to_status, attempt, actor, reason)
    SELECT id, NULL, status, attempt, changed_by, change_reason FROM born;
    SELECT id, status INTO illegal FROM born WHERE status <> ALL (attune.legal_births()) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'execution % may not be born as %', illegal.id, illegal.status
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

-- A nested loop over two transition tables, planned for one row, made a batch of a thousand eleven times slower.
CREATE FUNCTION record_execution_changes() RETURNS trigger LANGUAGE plpgsql SET enable_nestloop = off AS $$
DECLARE
    illegal record;
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
    RETURN NULL;
END $$;

CREATE TRIGGER execution_births AFTER INSERT ON execution
    REFERENCING NEW TABLE AS born FOR EACH STATEMENT EXECUTE FUNCTION record_execution_births();
CREATE TRIGGER execution_changes AFTER UPDATE ON execution
    REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION record_execution_changes();

-- One row while an execution is scheduled, running or canceling on a worker. It is the load, the lease, and what the
-- sweeps read. Half-empty pages, because every heartbeat rewrites the leases.
CREATE TABLE assignment (
    execution_id     bigint PRIMARY KEY,
    attempt          int NOT NULL,
    lease            uuid NOT NULL DEFAULT gen_random_uuid(),
    worker_id        bigint NOT NULL,
    worker_instance  uuid,
    placed_at        timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    lease_until      timestamptz,
    deadline         timestamptz,
    CONSTRAINT assignment_started_has_lease CHECK ((started_at IS NULL) = (lease_until IS NULL)),
    CONSTRAINT assignment_started_has_instance CHECK (started_at IS NULL OR worker_instance IS NOT NULL)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX assignment_worker ON assignment (worker_id);

-- Admitted, waiting for room on a worker. Its index is the order of placement.
CREATE TABLE unplaced (
    execution_id  bigint PRIMARY KEY,
    pool          bigint NOT NULL,
    priority      int NOT NULL,
    action_id     bigint NOT NULL,
    since         timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX unplaced_order ON unplaced (pool, priority DESC, execution_id);

-- What an attempt printed, in the order it was read.
CREATE TABLE execution_log (
    execution_id  bigint NOT NULL,
    attempt       int NOT NULL,
    stream        text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    seq           int NOT NULL,
    content       text NOT NULL,
    at            timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (at);
CREATE INDEX ON execution_log (execution_id, attempt, seq);

-- What a fenced attempt reported too late: kept for people, never applied.
CREATE TABLE late_result (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    execution_id  bigint NOT NULL,
    attempt       int NOT NULL,
    worker_id     bigint NOT NULL,
    outcome       text NOT NULL,
    result        jsonb,
    error         jsonb,
    at            timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON late_result (execution_id);

---------------------------------------------------------------------------------------------------------- lines

CREATE TABLE line (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    policy_id        bigint,
    scope            text NOT NULL,
    group_key        text NOT NULL DEFAULT '{}',
    group_hash       bytea NOT NULL,
    max_concurrent   int,
    adaptive_limit   int,
    active           int NOT NULL DEFAULT 0,
    waiting          int NOT NULL DEFAULT 0,
    next_seq         bigint NOT NULL DEFAULT 1,
    next_n           bigint NOT NULL DEFAULT 1,
    paused           boolean NOT NULL DEFAULT false,
    paused_by        text,
    tokens           double precision,
    refilled_at      timestamptz,
    wake_at          timestamptz,
    day              date,
    day_count        int NOT NULL DEFAULT 0,
    total_enqueued   bigint NOT NULL DEFAULT 0,
    total_completed  bigint NOT NULL DEFAULT 0,
    total_removed    bigint NOT NULL DEFAULT 0,
    last_updated     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT uq_line_scope_group UNIQUE (scope, group_hash),
    -- Never `active <= max_concurrent`: lowering a limit must not fail.
    CONSTRAINT line_counts_are_counts CHECK (active >= 0 AND waiting >= 0)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE line_entry (
    execution_id  bigint PRIMARY KEY,
    line_id       bigint NOT NULL,
    action_id     bigint NOT NULL,
    seq           bigint NOT NULL,
    priority      int NOT NULL DEFAULT 0,
    state         text NOT NULL CHECK (state IN ('waiting', 'active')),
    enqueued_at   timestamptz NOT NULL DEFAULT now(),
    activated_at  timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX line_entry_order ON line_entry (line_id, state, priority DESC, seq);
CREATE INDEX line_entry_enqueued ON line_entry (enqueued_at) WHERE state = 'waiting';

CREATE TABLE admission_log (
    line_id         bigint NOT NULL,
    n               bigint NOT NULL,
    op              text NOT NULL CHECK (op IN ('enq', 'rejoin', 'admit', 'release', 'remove', 'limit', 'pause')),
    execution_id    bigint,
    seq             bigint,
    priority        int,
    limit_in_force  int,
    active          int,
    at              timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (at);
CREATE INDEX ON admission_log (line_id, n);

CREATE VIEW queue_stats AS
SELECT substring(l.scope FROM 'action:(.*)')::bigint AS action_id,
       sum(l.waiting)::int AS queue_length,
       sum(l.active)::int AS active_count,
       min(l.max_concurrent) AS max_concurrent,
       min(o.enqueued_at) AS oldest_enqueued_at,
       sum(l.total_enqueued)::bigint AS total_enqueued,
       sum(l.total_completed)::bigint AS total_completed,
       max(l.last_updated) AS last_updated
  FROM line l
  LEFT JOIN LATERAL (SELECT e.enqueued_at FROM line_entry e WHERE e.line_id = l.id AND e.state = 'waiting'
                      ORDER BY e.seq LIMIT 1) o ON true
 WHERE l.scope LIKE 'action:%'
 GROUP BY l.scope;

CREATE TABLE queue_stats_history (
    action_id   bigint NOT NULL,
    minute      timestamptz NOT NULL,
    enqueued    int NOT NULL,
    completed   int NOT NULL,
    cancelled   int NOT NULL,
    length_max  int NOT NULL,
    wait_p50    double precision,
    wait_p95    double precision,
    wait_p99    double precision,
    PRIMARY KEY (action_id, minute)
);

------------------------------------------------------------------------------------------------------ processes

CREATE TABLE worker (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name                text NOT NULL UNIQUE,
    instance            uuid NOT NULL,
    labels              jsonb NOT NULL DEFAULT '{}',
    runtimes            text[] NOT NULL,
    capacity            int NOT NULL CHECK (capacity > 0),
    isolation           text NOT NULL DEFAULT 'none',
    status              text NOT NULL CHECK (status IN ('active', 'unresponsive', 'draining', 'inactive', 'lost')),
    marked_full         boolean NOT NULL DEFAULT false,  -- it handed work back for want of a slot; cleared by itself
    cordoned            boolean NOT NULL DEFAULT false,
    heartbeat_interval  double precision NOT NULL CHECK (heartbeat_interval > 0),
    last_heartbeat      timestamptz NOT NULL DEFAULT now(),
    health              jsonb NOT NULL DEFAULT '{}',
    host                text NOT NULL DEFAULT '',
    pid                 int,
    version             text NOT NULL DEFAULT '',
    created             timestamptz NOT NULL DEFAULT now(),
    updated             timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE executor_replica (
    name            text PRIMARY KEY,
    instance        uuid NOT NULL,
    started_at      timestamptz NOT NULL DEFAULT now(),
    last_heartbeat  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

------------------------------------------------------------------------------------------------------- messages

CREATE TABLE outbox (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic       text COLLATE "C" NOT NULL,
    type        text NOT NULL,
    items       jsonb NOT NULL DEFAULT '[]',  -- [[id, attempt], …]
    not_before  timestamptz NOT NULL DEFAULT now(),
    deliveries  int NOT NULL DEFAULT 0,
    deaths      jsonb NOT NULL DEFAULT '[]',
    created     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_topic_is_known CHECK (
        topic IN ('event.created', 'enforcement.created', 'execution.requested', 'line.changed', 'pool.changed',
                  'execution.status.changed', 'execution.completed', 'inquiry.responded', 'dead')
        OR topic ~ '^execution\.(dispatch|cancel)\.worker\.[0-9]+$')
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX outbox_due ON outbox (topic, not_before);

CREATE TABLE dead_letter (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic       text NOT NULL,
    type        text NOT NULL,
    items       jsonb NOT NULL DEFAULT '[]',
    body        text,  -- what could not be read as a message
    reason      text NOT NULL,
    error       text NOT NULL DEFAULT '',
    deliveries  int NOT NULL DEFAULT 0,
    deaths      jsonb NOT NULL DEFAULT '[]',
    created     timestamptz NOT NULL,
    parked_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON dead_letter (parked_at);

--------------------------------------------------------------------------------------------------------- access

CREATE TABLE permission_set (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ref          text NOT NULL UNIQUE,
    label        text NOT NULL DEFAULT '',
    description  text NOT NULL DEFAULT '',
    grants       jsonb NOT NULL,
    builtin      boolean NOT NULL DEFAULT false,
    created      timestamptz NOT NULL DEFAULT now(),
    updated      timestamptz NOT NULL DEFAULT now()
);
INSERT INTO permission_set (ref, label, description, grants, builtin) VALUES
    ('admin', 'Administrator', 'Everything.', '[{"resource": "*", "actions": ["*"]}]', true),
    ('viewer', 'Viewer', 'Sees everything except secrets, changes nothing.',
     '[{"resource": "*", "actions": ["read"]}]', true);

CREATE TABLE identity (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    login          text NOT NULL UNIQUE,
    display_name   text NOT NULL DEFAULT '',
    password_hash  text,
    enabled        boolean NOT NULL DEFAULT true,
    epoch          int NOT NULL DEFAULT 1,  -- grows when everything the identity holds is to be revoked
    created        timestamptz NOT NULL DEFAULT now(),
    updated        timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE identity_permission_set (
    identity        bigint NOT NULL REFERENCES identity (id) ON DELETE CASCADE,
    permission_set  bigint NOT NULL REFERENCES permission_set (id) ON DELETE CASCADE,
    PRIMARY KEY (identity, permission_set)
);

CREATE TABLE token (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    identity        bigint NOT NULL REFERENCES identity (id) ON DELETE CASCADE,
    name            text NOT NULL,
    hash            bytea NOT NULL UNIQUE,
    permission_set  bigint REFERENCES permission_set (id),  -- narrows what the identity may do
    epoch           int NOT NULL,
    created         timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz,
    revoked_at      timestamptz
);
CREATE INDEX ON token (identity);

CREATE TABLE audit_log (
    id          bigint GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    identity    bigint,
    actor       text NOT NULL,
    operation   text NOT NULL,
    resource    text NOT NULL,
    detail      jsonb NOT NULL DEFAULT '{}',
    request_id  text,
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id()
) PARTITION BY RANGE (at);
CREATE INDEX ON audit_log (id);

CREATE TABLE idempotency_key (
    identity   bigint NOT NULL,
    route      text NOT NULL,
    key        text NOT NULL,
    body_hash  bytea NOT NULL,
    answer     jsonb NOT NULL,
    created    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (identity, route, key)
);
CREATE INDEX ON idempotency_key (created);

----------------------------------------------------------------------------------------------------- partitions

CREATE TABLE execution_history_default PARTITION OF execution_history DEFAULT;
CREATE TABLE execution_log_default PARTITION OF execution_log DEFAULT;
CREATE TABLE admission_log_default PARTITION OF admission_log DEFAULT;
CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT;

-- One partition a day (UTC). Returns how many were made.
CREATE FUNCTION ensure_partitions(days_ahead int) RETURNS int LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    parent text;
    first_day date;
    name text;
    made int := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['execution_history', 'execution_log', 'admission_log', 'audit_log'] LOOP
        FOR offset_days IN 0..days_ahead LOOP
            first_day := current_date + offset_days;
            name := parent || '_' || to_char(first_day, 'YYYYMMDD');
            IF to_regclass('attune.' || name) IS NULL THEN
                EXECUTE format('CREATE TABLE attune.%I PARTITION OF attune.%I FOR VALUES FROM (%L) TO (%L)',
                               name, parent, first_day::timestamptz, (first_day + 1)::timestamptz);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;

SELECT ensure_partitions(7);
