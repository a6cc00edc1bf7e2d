-- Registering, in one round trip.
SET LOCAL ROLE wheelsched_owner;

-- With the rights of its caller and behind row-level security, like the statements that it is made
-- of. Timers come after the jobs, whose rows have to be there before timers can be seen; the count
-- comes last: it is the one row that all who register for a tenant wait for.
--
-- Jobs are all new, as nearly all are. Without ON CONFLICT a row costs half of what it costs with
-- it: no second look at each unique index, and no second record in the log.
--
-- A registration of several parts has its subject and its count with the last of them.
CREATE FUNCTION register_jobs(
    given_tenant uuid, given_ids uuid[], due_ats timestamptz[], names text[], definitions json[],
    tag_sets jsonb[], created_ats timestamptz[],
    given_actor text, given_subject text, given_detail jsonb, added integer
) RETURNS void
    LANGUAGE plpgsql SET search_path = wheelsched, pg_temp
AS $$
DECLARE
    counted bigint;
    quota integer;
BEGIN
    PERFORM set_config('wheelsched.tenant', given_tenant::text, true);

    INSERT INTO jobs (
        job_id, tenant_id, partition, name, state, definition, tags, created_at, updated_at
    )
    SELECT job_id, given_tenant, get_byte(sha256(uuid_send(job_id)), 0), name,
        CASE WHEN due_at IS NULL THEN 'finished' ELSE 'active' END,
        definition, tags, created_at, created_at
    FROM unnest(given_ids, due_ats, names, definitions, tag_sets, created_ats)
        AS job (job_id, due_at, name, definition, tags, created_at);

    PERFORM start_timers(given_ids, due_ats);

    IF given_subject IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO audit (tenant_id, actor, verb, subject, detail)
    VALUES (given_tenant, given_actor, 'job.register', given_subject, given_detail);

    INSERT INTO job_counts (tenant_id, jobs) VALUES (given_tenant, added)
    ON CONFLICT (tenant_id) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs
    RETURNING jobs INTO counted;
    SELECT job_quota INTO quota FROM tenants WHERE tenant_id = given_tenant;
    IF counted > quota THEN
        RAISE EXCEPTION 'the tenant has more jobs than its quota'
            USING ERRCODE = 'WSQ01', DETAIL = format('%s %s', counted - added, quota);
    END IF;
END
$$;

-- The timers of new jobs, and hints of those that are due within the horizon.
CREATE FUNCTION start_timers(given_ids uuid[], due_ats timestamptz[]) RETURNS void
    LANGUAGE plpgsql SET search_path = wheelsched, pg_temp
AS $$
BEGIN
    INSERT INTO timers (job_id, partition, version, due_at)
    SELECT job_id, get_byte(sha256(uuid_send(job_id)), 0), 1, due_at
    FROM unnest(given_ids, due_ats) AS timer (job_id, due_at)
    WHERE due_at IS NOT NULL;

    -- A notice has room for 8,000 bytes: a thousand jobs are five of them, not a thousand.
    PERFORM pg_notify('wheelsched', '* ' || string_agg(job_id::text, ' '))
    FROM (
        SELECT job_id, row_number() OVER () / 200 AS page
        FROM unnest(given_ids, due_ats) AS timer (job_id, due_at)
        WHERE due_at < clock_timestamp() + interval '10 minutes'
    ) AS soon
    GROUP BY page;
END
$$;

REVOKE ALL ON FUNCTION
    register_jobs(
        uuid, uuid[], timestamptz[], text[], json[], jsonb[], timestamptz[], text, text, jsonb,
        integer
    ),
    start_timers(uuid[], timestamptz[])
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    register_jobs(
        uuid, uuid[], timestamptz[], text[], json[], jsonb[], timestamptz[], text, text, jsonb,
        integer
    ),
    start_timers(uuid[], timestamptz[])
    TO wheelsched_api;
