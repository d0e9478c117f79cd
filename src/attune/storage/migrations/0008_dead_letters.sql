-- Dead letters that say what became of them, and how long a dispatch may wait for its worker.

-- Of a request, or of its action where the request does not say it; NULL follows the setting.
ALTER TABLE action ADD COLUMN worker_queue_ttl_seconds double precision CHECK (worker_queue_ttl_seconds > 0);
ALTER TABLE execution ADD COLUMN worker_queue_ttl_seconds double precision;

-- NULL: parked, waits for a person.
ALTER TABLE dead_letter ADD COLUMN outcome text
    CHECK (outcome IN ('placed_elsewhere', 'failed_execution', 'no_effect', 'replayed', 'dropped'));
ALTER TABLE dead_letter ADD COLUMN outcome_by text;
ALTER TABLE dead_letter ADD COLUMN outcome_at timestamptz;
-- What it was about, for statistics: the action of its first execution, and the worker that did not take it.
ALTER TABLE dead_letter ADD COLUMN action_ref text;
ALTER TABLE dead_letter ADD COLUMN worker_id bigint;
-- Which start of that worker: the next one is not to blame.
ALTER TABLE dead_letter ADD COLUMN worker_instance uuid;
ALTER TABLE dead_letter ADD CONSTRAINT dead_letter_outcome_is_whole
    CHECK ((outcome IS NULL) = (outcome_by IS NULL) AND (outcome IS NULL) = (outcome_at IS NULL));

-- The few that wait for a person.
CREATE INDEX dead_letter_open ON dead_letter (id) WHERE outcome IS NULL;
-- Asked by every placement, for every worker.
CREATE INDEX dead_letter_instance ON dead_letter (worker_instance, parked_at) WHERE worker_instance IS NOT NULL;
