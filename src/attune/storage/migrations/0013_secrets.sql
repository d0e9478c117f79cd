-- Secrets beside what everybody may read, large results, and how long output is kept.

-- The values of parameters that are secret, sealed with a key that is not in the database. `execution.parameters` holds
-- a marker in their place, so whatever reads that column cannot show one.
CREATE TABLE sealed_parameters (
    execution_id  bigint PRIMARY KEY,
    sealed        bytea NOT NULL,
    created       timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON sealed_parameters (created);

-- Results that are too large for a row. The content is in pieces of one size, so that a part can be read alone.
CREATE TABLE artifact (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    execution_id  bigint NOT NULL,
    attempt       int NOT NULL,
    name          text NOT NULL,
    media_type    text NOT NULL,
    bytes         bigint NOT NULL CHECK (bytes >= 0),
    sha256        text NOT NULL,
    created       timestamptz NOT NULL DEFAULT now(),
    -- A report that is sent again finds what it stored the first time.
    CONSTRAINT uq_artifact_of_attempt UNIQUE (execution_id, attempt, name)
);
CREATE INDEX ON artifact (created);

CREATE TABLE artifact_piece (
    artifact_id  bigint NOT NULL REFERENCES artifact (id) ON DELETE CASCADE,
    n            int NOT NULL,
    content      bytea NOT NULL,
    PRIMARY KEY (artifact_id, n)
);
-- Most content does not get much smaller, and trying costs more than it saves.
ALTER TABLE artifact_piece ALTER COLUMN content SET STORAGE EXTERNAL;

-- Drop the days of output that ended more than so many days ago. Returns how many were dropped.
CREATE FUNCTION drop_logs(p_days int) RETURNS int LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
    old text;
    dropped int := 0;
BEGIN
    FOR old IN
        SELECT k.relname FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
         WHERE i.inhparent = 'attune.execution_log'::regclass
           AND k.relname ~ '_[0-9]{8}$' AND to_date(right(k.relname, 8), 'YYYYMMDD') < current_date - p_days
         ORDER BY k.relname
    LOOP
        EXECUTE format('DROP TABLE attune.%I', old);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;
