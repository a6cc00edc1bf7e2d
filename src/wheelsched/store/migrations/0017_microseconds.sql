-- `schedule_at` cut its time to the millisecond, so that a job could be due before it. The job is
-- registered with the time as given, and is due at the next whole millisecond.
SET LOCAL ROLE wheelsched_owner;

CREATE OR REPLACE FUNCTION schedule_at(
    name text, at timestamptz, url text, payload jsonb DEFAULT NULL, options jsonb DEFAULT '{}',
    if_exists text DEFAULT 'error'
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
BEGIN
    -- Years of four digits, which infinity has not.
    IF ($2 >= '0001-01-01Z' AND $2 < '9999-12-31Z') IS NOT TRUE THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('at: %s is not a valid due time', coalesce($2::text, 'null')),
            HINT = 'Choose a time that is still to come.';
    END IF;
    RETURN add_job(
        $1, to_char($2 AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), $3, $4, 'UTC', $5, $6
    );
END
$$;
