-- Reads of the API that take one round trip: a function names its tenant, reads, and names none
-- again. Its statements run one after the other, and an error takes the name back with the rest of
-- the transaction. The functions have the rights of their caller: row level security applies inside
-- as it does outside.
SET LOCAL ROLE wheelsched_owner;

CREATE FUNCTION read_job(for_tenant uuid, wanted_id uuid) RETURNS SETOF jobs
    LANGUAGE plpgsql ROWS 1
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_config('wheelsched.tenant', for_tenant::text, true);
    RETURN QUERY SELECT * FROM wheelsched.jobs WHERE job_id = wanted_id;
    PERFORM set_config('wheelsched.tenant', '', true);
END
$$;

-- By name; of one name first the job that is not finished, then the others, the latest first. Each
-- part reads an index in that order, and no more of it than a page. The fingerprint differs when
-- any job of the page does; a page whose fingerprint is known comes back as one row without a job,
-- and so does an empty one, whose fingerprint is null.
--
-- All pages have one plan: planning took longer than reading. It reads the indexes in their order,
-- whatever the statistics said when it was made. A name is looked up by a plan that knows it.
CREATE FUNCTION list_jobs(
    for_tenant uuid, after_name text, after_end timestamptz, after_id uuid, wanted_state text,
    wanted_name text, wanted_tags jsonb, at_most integer, known bytea
) RETURNS TABLE (
    fingerprint bytea, job_id uuid, tenant_id uuid, name text, state text, version integer,
    definition json, tags jsonb, created_at timestamptz, updated_at timestamptz,
    paused_at timestamptz, error text
)
    LANGUAGE plpgsql
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM set_config('wheelsched.tenant', for_tenant::text, true);
    IF wanted_name IS NOT NULL THEN
        SET LOCAL plan_cache_mode = force_custom_plan;
    END IF;
    RETURN QUERY
    WITH page AS MATERIALIZED (
        SELECT *
        FROM (
            (
                SELECT * FROM wheelsched.jobs
                WHERE tenant_id = wheelsched.current_tenant() AND state <> 'finished'
                  AND name > after_name
                  AND (wanted_state IS NULL OR state = wanted_state)
                  AND (wanted_name IS NULL OR name = wanted_name)
                  AND (wanted_tags = '{}' OR tags @> wanted_tags)
                ORDER BY name
                LIMIT at_most
            )
            UNION ALL
            (
                SELECT * FROM wheelsched.jobs
                WHERE tenant_id = wheelsched.current_tenant() AND state = 'finished'
                  AND name = after_name AND updated_at <= after_end
                  AND (updated_at < after_end OR job_id > after_id)
                  AND (wanted_state IS NULL OR state = wanted_state)
                  AND (wanted_name IS NULL OR name = wanted_name)
                  AND (wanted_tags = '{}' OR tags @> wanted_tags)
                ORDER BY updated_at DESC, job_id
                LIMIT at_most
            )
            UNION ALL
            (
                SELECT * FROM wheelsched.jobs
                WHERE tenant_id = wheelsched.current_tenant() AND state = 'finished'
                  AND name > after_name
                  AND (wanted_state IS NULL OR state = wanted_state)
                  AND (wanted_name IS NULL OR name = wanted_name)
                  AND (wanted_tags = '{}' OR tags @> wanted_tags)
                ORDER BY name, updated_at DESC, job_id
                LIMIT at_most
            )
        ) AS parts
        ORDER BY name, state = 'finished', updated_at DESC, job_id
        LIMIT at_most
    ), seen AS MATERIALIZED (
        SELECT sha256(string_agg(
            uuid_send(job_id) || int4send(version) || timestamptz_send(updated_at), ''
        )) AS fingerprint
        FROM page
    )
    SELECT seen.fingerprint, page.job_id, page.tenant_id, page.name, page.state, page.version,
        page.definition, page.tags, page.created_at, page.updated_at, page.paused_at, page.error
    FROM seen LEFT JOIN page ON seen.fingerprint IS DISTINCT FROM known
    ORDER BY page.name, page.state = 'finished', page.updated_at DESC, page.job_id;
    PERFORM set_config('wheelsched.tenant', '', true);
END
$$;

REVOKE ALL ON FUNCTION read_job, list_jobs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION read_job, list_jobs TO wheelsched_api;
