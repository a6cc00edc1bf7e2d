-- name: list_unplanned
-- Drafts that are due first come first, so that a backlog does not delay them. Only the documents
-- of the page are read.
SELECT unplanned_id, page.job_id, jobs.job_id IS NULL AS is_gone, jobs.tenant_id, jobs.name,
    jobs.state, jobs.version, jobs.definition, jobs.created_at, jobs.updated_at, jobs.error
FROM (
    SELECT unplanned_id, job_id, due_at FROM unplanned
    WHERE partition = ANY ($1::smallint[])
    ORDER BY due_at, unplanned_id
    LIMIT $2
) AS page
LEFT JOIN jobs ON jobs.job_id = page.job_id
ORDER BY page.due_at, unplanned_id;

-- name: plan
-- Turns drafts into jobs with timers, or records why they are refused. A draft that another
-- transaction has locked is skipped, and stays in the list.
WITH {{fence_with_owned}}, given AS (
    SELECT * FROM unnest(
        $3::bigint[], $4::uuid[], $5::integer[], $6::json[], $7::jsonb[], $8::timestamptz[],
        $9::text[]
    ) AS plan (unplanned_id, job_id, version, definition, tags, due_at, error)
), locked AS MATERIALIZED (
    SELECT given.*, jobs.tenant_id, jobs.partition
    FROM fence, given JOIN jobs ON jobs.job_id = given.job_id
    WHERE jobs.version = given.version
      AND jobs.state = 'unplanned'
      AND jobs.partition = ANY (fence.owned)
    ORDER BY jobs.job_id
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
), held AS MATERIALIZED (
    SELECT job_counts.tenant_id, job_counts.jobs FROM job_counts
    WHERE job_counts.tenant_id IN (SELECT tenant_id FROM locked)
    ORDER BY job_counts.tenant_id
    FOR NO KEY UPDATE OF job_counts
), numbered AS (
    SELECT locked.*, coalesce(held.jobs, 0) AS before, tenants.job_quota,
        count(*) FILTER (WHERE error IS NULL)
            OVER (PARTITION BY locked.tenant_id ORDER BY unplanned_id) AS number
    FROM locked
    JOIN tenants ON tenants.tenant_id = locked.tenant_id
    LEFT JOIN held ON held.tenant_id = locked.tenant_id
), judged AS MATERIALIZED (
    SELECT numbered.*,
        CASE WHEN error IS NULL AND before + number > job_quota
            THEN format('the tenant has reached its quota of %s jobs', job_quota)
            ELSE error
        END AS refusal
    FROM numbered
), written AS (
    UPDATE jobs
    SET state = CASE WHEN judged.refusal IS NULL THEN 'active' ELSE 'refused' END,
        version = jobs.version + 1,
        definition = CASE WHEN judged.refusal IS NULL
            THEN judged.definition ELSE jobs.definition END,
        tags = CASE WHEN judged.refusal IS NULL THEN judged.tags ELSE jobs.tags END,
        error = judged.refusal,
        updated_at = clock_timestamp()
    FROM judged
    WHERE jobs.job_id = judged.job_id
), started AS (
    INSERT INTO timers (job_id, partition, version, due_at)
    SELECT job_id, partition, version + 1, due_at FROM judged WHERE refusal IS NULL
), counted AS (
    INSERT INTO job_counts (tenant_id, jobs)
    SELECT tenant_id, count(*) FROM judged WHERE refusal IS NULL GROUP BY tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs
), done AS (
    DELETE FROM unplanned
    USING judged
    WHERE unplanned.unplanned_id = judged.unplanned_id
)
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    array_agg(job_id) FILTER (WHERE refusal IS NULL) AS accepted,
    array_agg(job_id) FILTER (WHERE refusal IS NOT NULL) AS refused
FROM judged;

-- name: clear
-- Removes the timers and retries of jobs that applications have cancelled, and the entries of
-- drafts that are planned by now. If a timer was due before its job was cancelled and not armed,
-- its due time is recorded as skipped; later ones are unknown, because the schedule is gone with
-- the job.
WITH {{fence_with_owned}}, struck AS (
    DELETE FROM unplanned
    USING fence
    WHERE unplanned.unplanned_id = ANY ($3::bigint[])
      AND unplanned.partition = ANY (fence.owned)
      AND NOT EXISTS (
          SELECT FROM jobs WHERE jobs.job_id = unplanned.job_id AND jobs.state = 'unplanned'
      )
    RETURNING unplanned.job_id, unplanned.tenant_id, unplanned.is_counted, unplanned.written_at
), gone AS MATERIALIZED (
    SELECT job_id, tenant_id, max(written_at) AS cancelled_at FROM struck
    WHERE NOT EXISTS (SELECT FROM jobs WHERE jobs.job_id = struck.job_id)
    GROUP BY job_id, tenant_id
    ORDER BY job_id
), stopped AS (
    DELETE FROM timers
    USING gone
    WHERE timers.job_id = gone.job_id
    RETURNING timers.job_id, timers.due_at, timers.partition, gone.tenant_id, gone.cancelled_at
), skipped AS (
    INSERT INTO runs (
        job_id, due_at, tenant_id, partition, state, finished_at, skip_reason, missed_count,
        missed_since
    )
    SELECT job_id, due_at, tenant_id, partition, 'skipped', clock_timestamp(), 'deleted', 1, due_at
    FROM stopped
    WHERE due_at <= cancelled_at
    ON CONFLICT (job_id, due_at) DO NOTHING
), ended AS (
    UPDATE runs SET state = 'cancelled', finished_at = clock_timestamp(), retry_at = NULL
    FROM gone JOIN retries ON retries.job_id = gone.job_id
    WHERE runs.job_id = retries.job_id AND runs.due_at = retries.due_at AND runs.state = 'retrying'
    RETURNING runs.job_id, runs.due_at
), forgotten AS (
    DELETE FROM retries
    USING ended
    WHERE retries.job_id = ended.job_id AND retries.due_at = ended.due_at
), removed AS (
    SELECT tenant_id, count(*) AS jobs FROM struck WHERE is_counted GROUP BY tenant_id
), held AS MATERIALIZED (
    SELECT job_counts.tenant_id, removed.jobs
    FROM removed JOIN job_counts ON job_counts.tenant_id = removed.tenant_id
    ORDER BY job_counts.tenant_id
    FOR NO KEY UPDATE OF job_counts
), counted AS (
    UPDATE job_counts SET jobs = job_counts.jobs - held.jobs
    FROM held
    WHERE job_counts.tenant_id = held.tenant_id
)
SELECT EXISTS (SELECT FROM fence) AS is_held;

-- name: make_days_of_cancelled
SELECT make_days(ARRAY(
    SELECT DISTINCT (timers.due_at AT TIME ZONE 'UTC')::date
    FROM unplanned JOIN timers ON timers.job_id = unplanned.job_id
    WHERE unplanned.unplanned_id = ANY ($1::bigint[]) AND timers.due_at <= unplanned.written_at
));
