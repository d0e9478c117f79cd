-- What a worker found on its machine to run actions with: a sentence for each runtime, offered or not.
ALTER TABLE worker ADD COLUMN runtime_details jsonb NOT NULL DEFAULT '{}';
