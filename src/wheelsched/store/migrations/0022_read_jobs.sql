-- Jobs by their ids, in the way of `list_jobs`: reads that wait for a connection at the same time
-- share one statement. Its plan may have been made when the table was empty, and uses the index.
SET LOCAL ROLE wheelsched_owner;

CREATE FUNCTION read_jobs(for_tenant uuid, wanted_ids uuid[]) RETURNS SETOF jobs
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
AS $$
BEGIN
    PERFORM set_config('wheelsched.tenant', for_tenant::text, true);
    RETURN QUERY SELECT * FROM wheelsched.jobs WHERE job_id = ANY (wanted_ids);
    PERFORM set_config('wheelsched.tenant', '', true);
END
$$;

REVOKE ALL ON FUNCTION read_jobs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_jobs TO wheelsched_api;
DROP FUNCTION read_job;
