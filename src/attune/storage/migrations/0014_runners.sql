-- What actions of the runners `container` and `http` say beside what every action says.

ALTER TABLE action ADD COLUMN image text;       -- what a container is made from
ALTER TABLE action ADD COLUMN container jsonb;  -- its network and limits; NULL for the usual ones
ALTER TABLE action ADD COLUMN http jsonb;       -- the request, with parameters where {"parameter": name} stands

-- As before, and: whoever makes a container gives the highest level, whatever its other actions get.
CREATE OR REPLACE FUNCTION can_run(w worker, a action) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT a.runner = ANY (w.runtimes) AND a.labels <@ w.labels
       AND (a.runner = 'container' OR attune.isolation_level(a.isolation) <= attune.isolation_level(w.isolation))
$$;
