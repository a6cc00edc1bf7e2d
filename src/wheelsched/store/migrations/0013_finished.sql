-- A finished job gives back its name and its place in the quota at once.
--
-- While the indexes are made (six seconds for a million jobs) nobody reads or writes jobs: nothing
-- is armed or registered. What is armed already goes out on time.
SET LOCAL ROLE wheelsched_owner;

-- The strongest lock first: to ask for it after a weaker one is a deadlock with any transaction
-- that has read a job and is about to change it.
LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE;

-- Jobs with a recurring schedule that had finished were kept for ever. From now on they go with
-- the others, and have the whole of their retention before them.
UPDATE jobs SET updated_at = clock_timestamp()
WHERE state = 'finished' AND definition -> 'spec' ->> 'kind' <> 'at';

-- Each job is in one of two indexes by name. The name of the first is the one that applications
-- see in their errors.
ALTER TABLE jobs DROP CONSTRAINT jobs_tenant_id_name_key;
CREATE UNIQUE INDEX jobs_tenant_id_name_key ON jobs (tenant_id, name) WHERE state <> 'finished';
CREATE INDEX finished_by_name ON jobs (tenant_id, name, updated_at DESC, job_id)
    WHERE state = 'finished';
DROP INDEX one_offs_by_end;
CREATE INDEX finished_by_end ON jobs (updated_at, job_id) WHERE state = 'finished';

UPDATE job_counts SET jobs = job_counts.jobs - finished.jobs
FROM (
    SELECT tenant_id, count(*) AS jobs FROM jobs WHERE state = 'finished' GROUP BY tenant_id
) AS finished
WHERE job_counts.tenant_id = finished.tenant_id;

-- As before, but for `finished` beside the jobs that are not counted.
CREATE OR REPLACE FUNCTION remove_job(tenant uuid, given_id uuid, is_replaced boolean)
    RETURNS boolean LANGUAGE plpgsql SET search_path = wheelsched, pg_temp
AS $$
DECLARE
    gone jobs;
BEGIN
    DELETE FROM jobs
    WHERE jobs.job_id = given_id AND jobs.tenant_id = tenant
      AND (is_replaced OR jobs.state <> 'finished')
    RETURNING * INTO gone;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (
            SELECT FROM jobs WHERE jobs.job_id = given_id AND jobs.tenant_id = tenant
        ) THEN false END;
    END IF;
    INSERT INTO unplanned (job_id, tenant_id, partition, is_counted)
    VALUES (
        gone.job_id, tenant, gone.partition,
        gone.state NOT IN ('unplanned', 'refused', 'finished')
    );
    INSERT INTO audit (tenant_id, actor, verb, subject, detail)
    VALUES (
        tenant, 'database role ' || calling_role(), 'job.delete', gone.job_id,
        jsonb_build_object('name', gone.name, 'version', gone.version)
    );
    PERFORM pg_notify('wheelsched', '+' || gone.partition || ' ' || gone.job_id);
    -- What is due within a second may be sent before its shard hears of this; what is due and
    -- still armed, or running, was sent.
    RETURN NOT EXISTS (
        SELECT FROM runs
        WHERE runs.job_id = given_id AND runs.state IN ('armed', 'running')
          AND runs.due_at > statement_timestamp() - interval '2 days'
          AND runs.due_at <= statement_timestamp() + interval '1 day'
          AND runs.due_at <= clock_timestamp() + interval '1 second'
    );
END
$$;

-- As before, but for a finished job of that name: it is not in the way, and stays.
CREATE OR REPLACE FUNCTION add_job(
    given_name text, given_schedule text, given_url text, given_payload jsonb,
    given_timezone text, given_options jsonb, if_exists text
) RETURNS uuid
    LANGUAGE plpgsql SET search_path = wheelsched, pg_temp
AS $$
DECLARE
    tenant uuid := calling_tenant();
    new_id uuid := gen_random_uuid();
    place smallint := get_byte(sha256(uuid_send(new_id)), 0);
    due timestamptz;
    written jsonb;
    known jobs;
    scheduled bigint := coalesce(nullif(current_setting('wheelsched.scheduled', true), ''), '0');
    quota integer := (SELECT job_quota FROM tenants WHERE tenants.tenant_id = tenant);
    counted bigint := coalesce(
        (SELECT jobs FROM job_counts WHERE job_counts.tenant_id = tenant), 0
    );
BEGIN
    PERFORM check_job(
        given_name, given_schedule, given_url, given_payload, given_timezone, given_options
    );
    IF if_exists IS NULL OR if_exists NOT IN ('error', 'keep', 'replace') THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'if_exists: error, keep or replace is right';
    END IF;
    BEGIN
        written := CASE WHEN left(ltrim(given_schedule), 1) = '{'
            THEN given_schedule::jsonb ELSE to_jsonb(given_schedule) END;
    EXCEPTION WHEN data_exception THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'schedule: what begins with a brace is JSON, and this is none: ' || SQLERRM;
    END;
    due := instant_of(given_schedule, given_timezone);
    IF due < clock_timestamp() - interval '60 seconds'
        AND given_options #> '{misfire,grace}' IS NULL
    THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('schedule: %s has passed, longer ago than the grace of 60s', due),
            HINT = 'Choose a time that is still to come.';
    END IF;
    SELECT * INTO known FROM jobs
    WHERE jobs.tenant_id = tenant AND jobs.name = given_name AND jobs.state <> 'finished';
    IF FOUND AND if_exists = 'keep' THEN
        RETURN known.job_id;
    ELSIF FOUND AND if_exists = 'replace' THEN
        PERFORM remove_job(tenant, known.job_id, true);
        counted := counted - 1;
    END IF;
    -- How many the transaction has added is nobody's business but its own. The shard that plans
    -- them holds the count itself against the quota; this is to say so at once.
    IF counted + scheduled >= quota THEN
        RAISE configuration_limit_exceeded USING
            MESSAGE = format('the tenant has as many jobs as it may have: %s', quota),
            HINT = 'An operator raises its quota, or cancel what is needed no more.';
    END IF;
    INSERT INTO jobs (
        job_id, tenant_id, partition, name, state, definition, created_at, updated_at
    )
    SELECT new_id, tenant, place, given_name, 'unplanned',
        (given_options || jsonb_build_object(
            'name', given_name,
            'schedule', written,
            'timezone', given_timezone,
            'target',
            coalesce(given_options -> 'target', '{}') || jsonb_build_object('url', given_url),
            'payload', coalesce(given_payload, 'null')
        ))::text::json,
        written_at, written_at
    FROM (VALUES (clock_timestamp())) AS clock (written_at)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        -- It was there, or another transaction has added it meanwhile.
        SELECT * INTO known FROM jobs
        WHERE jobs.tenant_id = tenant AND jobs.name = given_name AND jobs.state <> 'finished';
        IF FOUND AND if_exists = 'keep' THEN
            RETURN known.job_id;
        END IF;
        RAISE unique_violation USING
            MESSAGE = format('the tenant has a job named %L already', given_name),
            DETAIL = format('Its id is %s and its state %s.', known.job_id, known.state),
            HINT = 'if_exists => ''replace'' cancels it and schedules this one; '
                'if_exists => ''keep'' leaves it as it is.',
            SCHEMA = 'wheelsched', TABLE = 'jobs', CONSTRAINT = 'jobs_tenant_id_name_key';
    END IF;
    INSERT INTO unplanned (job_id, tenant_id, partition, due_at)
    VALUES (new_id, tenant, place, due);
    INSERT INTO audit (tenant_id, actor, verb, subject, detail)
    VALUES (
        tenant, 'database role ' || calling_role(), 'job.register', new_id,
        jsonb_build_object('count', 1, 'names', jsonb_build_array(given_name))
    );
    PERFORM set_config('wheelsched.scheduled', (scheduled + 1)::text, true);
    PERFORM pg_notify('wheelsched', '+' || place || ' ' || new_id);
    RETURN new_id;
END
$$;

-- The job of that name that is not finished; or else the one that finished last, of which it says
-- that it is too late.
CREATE OR REPLACE FUNCTION cancel(name text) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
    SELECT remove_job(
        tenant,
        coalesce(
            (
                SELECT jobs.job_id FROM jobs
                WHERE jobs.tenant_id = tenant AND jobs.name = $1 AND jobs.state <> 'finished'
            ),
            (
                SELECT jobs.job_id FROM jobs
                WHERE jobs.tenant_id = tenant AND jobs.name = $1 AND jobs.state = 'finished'
                ORDER BY jobs.updated_at DESC LIMIT 1
            )
        ),
        false
    )
    FROM calling_tenant() AS tenant
$$;
