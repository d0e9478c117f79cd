-- How workers keep actions apart, and workers that take themselves out.

-- What an action gets that asks for nothing; `isolation` is the most the worker can give.
ALTER TABLE worker ADD COLUMN isolation_usual text NOT NULL DEFAULT 'none';
-- Why the worker cordoned itself; NULL if people did, or nobody.
ALTER TABLE worker ADD COLUMN cordon_reason text;
