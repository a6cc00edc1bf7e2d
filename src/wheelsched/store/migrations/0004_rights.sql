-- What each role may do. A shard sees all tenants; the API sees the one that it has named.
SET LOCAL ROLE wheelsched_owner;

CREATE FUNCTION current_tenant() RETURNS uuid
    LANGUAGE sql STABLE
AS $$
    SELECT nullif(current_setting('wheelsched.tenant', true), '')::uuid
$$;

GRANT SELECT ON tenants, jobs, timers, runs, attempts, retries, dead, shards, partitions, days
    TO wheelsched_shard;
GRANT INSERT, UPDATE, DELETE ON timers, runs, attempts, retries, dead, shards, partitions
    TO wheelsched_shard;
GRANT UPDATE (state, paused_at, updated_at, version) ON jobs TO wheelsched_shard;
GRANT INSERT ON audit TO wheelsched_shard;
GRANT EXECUTE ON FUNCTION make_days(date[]) TO wheelsched_shard, wheelsched_api;

GRANT SELECT ON shards, partitions, days TO wheelsched_api;
GRANT SELECT ON tenants, tokens TO wheelsched_api;
GRANT SELECT, INSERT, UPDATE, DELETE ON jobs, timers, runs, attempts, retries, dead
    TO wheelsched_api;
GRANT SELECT, INSERT ON audit TO wheelsched_api;

DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY[
        'tenants', 'jobs', 'timers', 'runs', 'attempts', 'retries', 'dead', 'audit'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('CREATE POLICY shard ON %I TO wheelsched_shard USING (true)', guarded);
    END LOOP;
    FOREACH guarded IN ARRAY ARRAY['tenants', 'jobs', 'runs', 'attempts', 'dead', 'audit'] LOOP
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO wheelsched_api USING (tenant_id = current_tenant())',
            guarded
        );
    END LOOP;
    -- These name no tenant, to stay narrow: their rows are those of the jobs that can be seen.
    FOREACH guarded IN ARRAY ARRAY['timers', 'retries'] LOOP
        EXECUTE format(
            'CREATE POLICY tenant ON %1$I TO wheelsched_api USING '
            '(EXISTS (SELECT FROM jobs WHERE jobs.job_id = %1$I.job_id))',
            guarded
        );
    END LOOP;
END
$$;
