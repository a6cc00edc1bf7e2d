-- The daily tables of runs and attempts.
SET LOCAL ROLE wheelsched_owner;

CREATE TABLE days (
    day            date PRIMARY KEY
);
COMMENT ON TABLE days IS 'each day that has tables; its lock is what makes them one at a time';

-- A table is made beside its parent and then attached: that takes a lock which the statements
-- of the shards do not notice, where CREATE ... PARTITION OF would stop them all.
CREATE FUNCTION make_days(wanted date[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
DECLARE
    missing date;
    made integer := 0;
BEGIN
    LOCK TABLE days IN SHARE ROW EXCLUSIVE MODE;
    FOR missing IN SELECT unnest(wanted) EXCEPT SELECT day FROM days ORDER BY 1 LOOP
        PERFORM make_day('runs', missing, 42);
        PERFORM make_day('attempts', missing, 100);
        INSERT INTO days VALUES (missing);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

CREATE FUNCTION make_day(parent text, day date, fill integer) RETURNS void
    LANGUAGE plpgsql SET search_path = wheelsched, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    child text := parent || '_' || to_char(day, 'YYYYMMDD');
    day_start timestamptz := day::timestamptz;
    day_end timestamptz := (day + 1)::timestamptz;
BEGIN
    EXECUTE format(
        'CREATE TABLE %I (LIKE %I INCLUDING ALL) WITH (fillfactor = %s)', child, parent, fill
    );
    EXECUTE format(
        'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
        parent, child, day_start, day_end
    );
END
$$;

REVOKE ALL ON FUNCTION make_days(date[]), make_day(text, date, integer) FROM PUBLIC;
