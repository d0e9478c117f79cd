-- Who is above an execution costs the same however many executions there are: row by row, by their keys alone. As one
-- recursive statement it was planned to read the whole table.
CREATE OR REPLACE FUNCTION stopping_above(p_ids bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    above bigint[] := ARRAY(SELECT DISTINCT e.parent FROM attune.execution e
                             WHERE e.id = ANY (p_ids) AND e.parent IS NOT NULL);
BEGIN
    -- Most have nobody above them.
    WHILE above <> '{}' LOOP
        above := ARRAY(SELECT p.id FROM attune.execution p WHERE p.id = ANY (above) AND p.status = 'canceling');
        RETURN QUERY SELECT unnest(above);
        above := ARRAY(SELECT DISTINCT p.parent FROM attune.execution p
                        WHERE p.id = ANY (above) AND p.parent IS NOT NULL);
    END LOOP;
END $$;

-- Whoever looks for the head of a line must not be given this index instead, and read all who wait: on a young database
-- both look equally cheap, and the plan is kept. Only a question that says `timeout_from > '-infinity'` can use it.
DROP INDEX line_entry_timeout;
CREATE INDEX line_entry_timeout ON line_entry (timeout_from) WHERE state = 'waiting' AND timeout_from > '-infinity';
