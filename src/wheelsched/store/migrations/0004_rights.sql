-- What each role may do. A shard sees all tenants and no tokens. The API sees the tenant that its
-- transaction has named, or, where it acts for an operator and says so, all tenants and tokens and
-- none of their jobs. Before it knows any tenant it can ask for one token by its digest.
SET LOCAL ROLE wheelsched_owner;

CREATE FUNCTION current_tenant() RETURNS uuid
    LANGUAGE sql STABLE
AS $$
    SELECT nullif(current_setting('wheelsched.tenant', true), '')::uuid
$$;

CREATE FUNCTION is_operator() RETURNS boolean
    LANGUAGE sql STABLE
AS $$
    SELECT current_setting('wheelsched.operator', true) = 'true'
$$;

CREATE FUNCTION find_token(wanted bytea) RETURNS SETOF tokens
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = wheelsched, pg_temp
AS $$
    SELECT * FROM tokens WHERE digest = wanted
$$;
REVOKE ALL ON FUNCTION find_token(bytea) FROM PUBLIC;

GRANT SELECT ON tenants, jobs, timers, runs, attempts, retries, dead, shards, partitions, days
    TO wheelsched_shard;
GRANT INSERT ON runs, attempts, retries, dead, shards TO wheelsched_shard;
GRANT UPDATE ON timers, runs, retries, shards, partitions TO wheelsched_shard;
GRANT DELETE ON timers, retries, shards TO wheelsched_shard;
GRANT UPDATE (state, paused_at, updated_at, version) ON jobs TO wheelsched_shard;
GRANT EXECUTE ON FUNCTION make_days(date[]) TO wheelsched_shard, wheelsched_api;

GRANT SELECT ON shards, partitions, days TO wheelsched_api;
GRANT SELECT, INSERT, UPDATE ON tenants, tokens, job_counts TO wheelsched_api;
GRANT EXECUTE ON FUNCTION find_token(bytea) TO wheelsched_api;
GRANT SELECT, INSERT ON jobs, timers, runs, attempts, retries, dead TO wheelsched_api;
GRANT UPDATE ON jobs, timers, runs, retries TO wheelsched_api;
GRANT DELETE ON jobs, timers, retries, dead TO wheelsched_api;
GRANT SELECT, INSERT ON audit TO wheelsched_api;

DO $$
DECLARE
    guarded text;
BEGIN
    FOREACH guarded IN ARRAY ARRAY[
        'tenants', 'tokens', 'jobs', 'job_counts', 'timers', 'runs', 'attempts', 'retries', 'dead',
        'audit'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('CREATE POLICY shard ON %I TO wheelsched_shard USING (true)', guarded);
    END LOOP;
    FOREACH guarded IN ARRAY ARRAY[
        'jobs', 'job_counts', 'runs', 'attempts', 'retries', 'dead', 'audit'
    ] LOOP
        EXECUTE format(
            'CREATE POLICY tenant ON %I TO wheelsched_api USING (tenant_id = current_tenant())',
            guarded
        );
    END LOOP;
    FOREACH guarded IN ARRAY ARRAY['tenants', 'tokens', 'audit'] LOOP
        EXECUTE format(
            'CREATE POLICY operator ON %I TO wheelsched_api USING (is_operator())', guarded
        );
    END LOOP;
END
$$;
-- A tenant reads its own row and writes none.
CREATE POLICY tenant ON tenants FOR SELECT TO wheelsched_api USING (tenant_id = current_tenant());
-- Timers name no tenant, to stay narrow: their rows are those of the jobs that can be seen.
CREATE POLICY tenant ON timers TO wheelsched_api
    USING (EXISTS (SELECT FROM jobs WHERE jobs.job_id = timers.job_id));
