-- Jobs that applications schedule and cancel in transactions of their own, by functions.
--
-- How long such a transaction stays open nobody here knows. So it locks nothing that a shard waits
-- for: it adds rows, and of those that are there it removes rows of jobs, which shards pass by when
-- they are locked. Timers, runs and counts are put right by the shard that owns the job.
SET LOCAL ROLE wheelsched_owner;

-- The new states are no reason to read all jobs: what was right by the old rule is by the new one.
ALTER TABLE jobs DROP CONSTRAINT jobs_state_check;
ALTER TABLE jobs ADD CONSTRAINT jobs_state_check
    CHECK (state IN ('active', 'paused', 'finished', 'unplanned', 'refused')) NOT VALID;
ALTER TABLE jobs ADD COLUMN error text;
COMMENT ON COLUMN jobs.definition IS
    'json and not jsonb: the payload is kept byte for byte. While a job is unplanned or refused, '
    'the document that was written';
COMMENT ON COLUMN jobs.error IS 'why it was refused';
CREATE INDEX refused_by_end ON jobs (updated_at, job_id) WHERE state = 'refused';

-- Jobs whose timers are not what they should be: new ones, and those that are gone.
CREATE TABLE unplanned (
    unplanned_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id         uuid NOT NULL,
    tenant_id      uuid NOT NULL,
    partition      smallint NOT NULL,
    due_at         timestamptz,
    is_counted     boolean NOT NULL DEFAULT false,
    written_at     timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON COLUMN unplanned.due_at IS 'of a one-off: what is due first is planned first';
COMMENT ON COLUMN unplanned.is_counted IS 'the job is gone, and job_counts does not know yet';
CREATE INDEX unplanned_of_partition ON unplanned (partition, due_at);

CREATE TABLE database_roles (
    database_role  text PRIMARY KEY,
    tenant_id      uuid NOT NULL REFERENCES tenants ON DELETE CASCADE,
    granted_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE database_roles IS 'which tenant each role of an application speaks for';

ALTER TABLE unplanned ENABLE ROW LEVEL SECURITY;
ALTER TABLE database_roles ENABLE ROW LEVEL SECURITY;
CREATE POLICY shard ON unplanned TO wheelsched_shard USING (true);
GRANT SELECT, DELETE ON unplanned TO wheelsched_shard;
GRANT INSERT ON timers TO wheelsched_shard;
GRANT UPDATE (definition, tags, error) ON jobs TO wheelsched_shard;
GRANT SELECT, INSERT, UPDATE ON job_counts TO wheelsched_shard;

-- The role that somebody took with SET ROLE, or else logged in with. Not `current_user`: that is
-- the owner of the function that asks.
CREATE FUNCTION calling_role() RETURNS text
    LANGUAGE sql STABLE SET search_path = wheelsched, pg_temp
AS $$
    SELECT CASE WHEN current_setting('role') = 'none'
        THEN session_user::text ELSE current_setting('role') END
$$;

CREATE FUNCTION calling_tenant() RETURNS uuid
    LANGUAGE plpgsql STABLE SET search_path = wheelsched, pg_temp
AS $$
DECLARE
    tenant uuid := (SELECT tenant_id FROM database_roles WHERE database_role = calling_role());
BEGIN
    IF tenant IS NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('the database role %I speaks for no tenant', calling_role()),
            HINT = format(
                'An operator lets it: wheelsched tenant grant TENANT --database-role %I',
                calling_role()
            );
    END IF;
    RETURN tenant;
END
$$;

-- What can be told at once and cheaply. Everything else is judged by the shard, with all that the
-- core knows, before the job has a timer.
CREATE FUNCTION check_job(
    given_name text, given_schedule text, given_url text, given_payload jsonb,
    given_timezone text, given_options jsonb
) RETURNS void
    LANGUAGE plpgsql IMMUTABLE SET search_path = wheelsched, pg_temp
AS $$
DECLARE
    unknown text;
    -- Control characters, separators, marks that turn the direction of writing: see labels.py.
    unshowable text := '[\u0001-\u001f\u007f-\u009f\u2028\u2029\u061c\u200e\u200f'
        '\u202a-\u202e\u2066-\u2069\ufeff]';
BEGIN
    IF coalesce(given_name, '') = '' OR length(given_name) > 255 OR btrim(given_name) <> given_name
        OR given_name ~ unshowable
    THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'name: 1 to 255 characters that can be shown are right, '
                'and no space at the ends';
    END IF;
    IF coalesce(btrim(given_schedule), '') = '' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'schedule: a cron expression, an instant, ''every 5m'' or ''RRULE:…'' '
                'is right';
    END IF;
    IF left(ltrim(given_schedule), 1) <> '{' AND length(given_schedule) > 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = format(
            'schedule: the expression has %s characters; it may have 255', length(given_schedule)
        );
    END IF;
    IF coalesce(given_url, '') !~* '^https?://[^/?#]' OR given_url ~ '[[:space:][:cntrl:]]'
        OR length(given_url) > 2048
    THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'url: http:// or https:// and a host is right, at most 2,048 characters '
                'without spaces';
    END IF;
    IF octet_length(given_payload::text) > 262144 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format(
                'payload: it has %s bytes; at most 262144 are right',
                octet_length(given_payload::text)
            ),
            HINT = 'Send a reference to what is larger.';
    END IF;
    IF given_timezone IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'timezone: a name such as Europe/London is right';
    END IF;
    IF coalesce(jsonb_typeof(given_options), 'null') <> 'object'
        OR coalesce(jsonb_typeof(given_options -> 'target'), 'object') <> 'object'
        OR given_options -> 'target' ? 'url'
    THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'options: an object is right, with the fields of a job; '
                'its target has no url, which is an argument';
    END IF;
    SELECT string_agg(field, ', ' ORDER BY field) INTO unknown
    FROM jsonb_object_keys(given_options) AS field
    WHERE field NOT IN (
        'target', 'misfire', 'overlap', 'retry', 'timeout', 'jitter', 'priority', 'dst',
        'idempotency_key', 'tags'
    );
    IF unknown IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('options: %s is unknown, or an argument of its own', unknown),
            HINT = 'Fields are target, misfire, overlap, retry, timeout, jitter, priority, dst, '
                'idempotency_key and tags.';
    END IF;
END
$$;

-- The instant of a one-off, as far as Postgres reads it as the core does; null is no mistake.
CREATE FUNCTION instant_of(given_schedule text, given_timezone text) RETURNS timestamptz
    LANGUAGE plpgsql STABLE SET search_path = wheelsched, pg_temp
AS $$
BEGIN
    IF given_schedule !~ '^\s*\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d' THEN
        RETURN NULL;
    ELSIF given_schedule ~* '(z|[+-]\d\d(:?\d\d)?)\s*$' THEN
        RETURN given_schedule::timestamptz;
    END IF;
    RETURN given_schedule::timestamp AT TIME ZONE given_timezone;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION remove_job(tenant uuid, given_id uuid, is_replaced boolean) RETURNS boolean
    LANGUAGE plpgsql SET search_path = wheelsched, pg_temp
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
    VALUES (gone.job_id, tenant, gone.partition, gone.state NOT IN ('unplanned', 'refused'));
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

CREATE FUNCTION add_job(
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
    SELECT * INTO known FROM jobs WHERE jobs.tenant_id = tenant AND jobs.name = given_name;
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
        SELECT * INTO known FROM jobs WHERE jobs.tenant_id = tenant AND jobs.name = given_name;
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

-- What applications call.

CREATE FUNCTION schedule(
    name text, schedule text, url text, payload jsonb DEFAULT NULL, timezone text DEFAULT 'UTC',
    options jsonb DEFAULT '{}', if_exists text DEFAULT 'error'
) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
    SELECT add_job($1, $2, $3, $4, $5, $6, $7)
$$;
COMMENT ON FUNCTION schedule(text, text, text, jsonb, text, jsonb, text) IS
    'Schedules a job, if and when this transaction commits, and gives its id. schedule is a cron '
    'expression, an ISO-8601 instant, every 5m or RRULE:…, or a JSON object with start, end and '
    'exclude; options are the other fields of a job; if_exists is error, keep or replace.';

CREATE FUNCTION schedule_at(
    name text, at timestamptz, url text, payload jsonb DEFAULT NULL, options jsonb DEFAULT '{}',
    if_exists text DEFAULT 'error'
) RETURNS uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
    SELECT add_job(
        $1,
        to_char(
            date_trunc('milliseconds', $2) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
        ),
        $3, $4, 'UTC', $5, $6
    )
$$;
COMMENT ON FUNCTION schedule_at(text, timestamptz, text, jsonb, jsonb, text) IS
    'Schedules a job that runs once, if and when this transaction commits, and gives its id.';

CREATE FUNCTION cancel(job_id uuid) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
    SELECT remove_job(calling_tenant(), $1, false)
$$;
COMMENT ON FUNCTION cancel(uuid) IS
    'Deletes a job, if and when this transaction commits. True: nothing of it is sent any more, if '
    'the transaction commits a second before it is due. False: too late, it has run, or an attempt '
    'is on its way. Null: there is no such job.';

CREATE FUNCTION cancel(name text) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
    SELECT remove_job(tenant, jobs.job_id, false)
    FROM calling_tenant() AS tenant
    LEFT JOIN jobs ON jobs.tenant_id = tenant AND jobs.name = $1
$$;
COMMENT ON FUNCTION cancel(text) IS 'The same for the job of that name.';

REVOKE ALL ON FUNCTION
    calling_role(), calling_tenant(), check_job(text, text, text, jsonb, text, jsonb),
    instant_of(text, text), remove_job(uuid, uuid, boolean),
    add_job(text, text, text, jsonb, text, jsonb, text)
FROM PUBLIC;
-- Everybody may call: who speaks for no tenant is told so. The schema shows no row to anybody.
GRANT USAGE ON SCHEMA wheelsched TO PUBLIC;
GRANT EXECUTE ON FUNCTION
    schedule(text, text, text, jsonb, text, jsonb, text),
    schedule_at(text, timestamptz, text, jsonb, jsonb, text),
    cancel(uuid), cancel(text)
TO PUBLIC;
