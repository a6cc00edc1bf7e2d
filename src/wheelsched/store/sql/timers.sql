-- name: load_timers
-- The binary format counts from the year 2000, and the program from 1970. The difference is added
-- here, which is cheaper than in Python.
SELECT job_id, due_at + interval '946684800 seconds', version FROM timers
WHERE partition = ANY ($1::smallint[]) AND due_at <= $2
UNION ALL
SELECT job_id, due_at, version FROM timers
WHERE partition = ANY ($1::smallint[]) AND due_at = 'infinity';

-- name: load_retries
SELECT job_id, due_at, retry_at FROM retries
WHERE partition = ANY ($1::smallint[]) AND retry_at <= $2;

-- name: reload_timers
SELECT job_id, due_at, version FROM timers WHERE job_id = ANY ($1::uuid[]) AND due_at <= $2;

-- name: reload_retries
-- Only the retries that are new since they were read last: a job may have a hundred thousand.
-- OFFSET 0 makes the plan look them up by job, even if it is made while the table is empty.
SELECT given.job_id, found.due_at, found.retry_at
FROM unnest($1::uuid[], $3::timestamptz[]) AS given (job_id, since), LATERAL (
    SELECT due_at, retry_at FROM retries
    WHERE retries.job_id = given.job_id AND retry_at > given.since AND retry_at <= $2
    OFFSET 0
) AS found;

-- name: oldest_unarmed
SELECT partition, due_at, retry_at FROM oldest_unarmed($1);

-- name: read_jobs
SELECT job_id, tenant_id, name, state, version, definition, tags, created_at, updated_at, paused_at
FROM jobs
WHERE job_id = ANY ($1::uuid[]);

-- name: read_payloads
SELECT job_id, due_at, payload
FROM unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at)
JOIN payloads USING (job_id, due_at);

-- name: arm
-- Claims with one run, at their own due time, in the on-time lane: nearly all. Without the fence no
-- timer is moved. The result is short: the claims that won are listed only if some did not.
-- Without ON CONFLICT, which costs a fifth more: a run that exists already is an error.
WITH {{fence_with_owned}}, claims AS (
    SELECT * FROM unnest(
        $3::uuid[], $4::timestamptz[], $5::integer[], $6::timestamptz[], $7::uuid[], $8::bigint[]
    ) AS claim (job_id, due_at, version, next_due_at, tenant_id, token)
), moved AS (
    {{move_timers}}
    RETURNING claims.job_id, claims.due_at, claims.tenant_id, claims.token, timers.partition
), armed AS (
    INSERT INTO runs (job_id, due_at, tenant_id, partition, state, shard, token, armed_at)
    SELECT job_id, due_at, tenant_id, partition, 'armed', $1, token, clock_timestamp() FROM moved
    RETURNING job_id
), earliest AS (
    SELECT partition, min(due_at) AS due_at FROM moved GROUP BY partition
), {{lower_live_since}}
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    count(*) AS won,
    CASE WHEN count(*) < cardinality($3::uuid[]) THEN array_agg(job_id) END AS job_ids
FROM armed;

-- name: arm_missed
-- Claims after a misfire decision, each with a skip or any number of runs; and claims whose runs
-- may exist already.
WITH {{fence_with_owned}}, claims AS (
    SELECT * FROM unnest($3::uuid[], $4::timestamptz[], $5::integer[], $6::timestamptz[])
        AS claim (job_id, due_at, version, next_due_at)
), decided AS (
    SELECT * FROM unnest(
        $7::uuid[], $8::timestamptz[], $9::uuid[], $10::bigint[],
        $11::text[], $12::text[], $13::integer[], $14::timestamptz[]
    ) AS run (job_id, due_at, tenant_id, token, lane, skip_reason, missed_count, missed_since)
), moved AS (
    {{move_timers}}
    RETURNING timers.job_id, timers.partition
), written AS (
    INSERT INTO runs (
        job_id, due_at, tenant_id, partition, state, shard, token, armed_at, finished_at,
        lane, skip_reason, missed_count, missed_since
    )
    SELECT
        job_id, decided.due_at, decided.tenant_id, moved.partition,
        CASE WHEN decided.token IS NULL THEN 'skipped' ELSE 'armed' END,
        $1, decided.token,
        CASE WHEN decided.token IS NOT NULL THEN clock_timestamp() END,
        CASE WHEN decided.token IS NULL THEN clock_timestamp() END,
        decided.lane, decided.skip_reason, decided.missed_count, decided.missed_since
    FROM moved JOIN decided USING (job_id)
    -- A run that a pause or an edit withdrew was never sent, and may be armed again.
    ON CONFLICT (job_id, due_at) DO UPDATE
    SET state = excluded.state, shard = excluded.shard, token = excluded.token,
        armed_at = excluded.armed_at, finished_at = NULL, lane = excluded.lane,
        skip_reason = NULL, missed_count = NULL, missed_since = NULL
    WHERE excluded.state = 'armed' AND runs.state = 'skipped'
      AND runs.skip_reason IN ('paused', 'edited') AND runs.armed_at IS NOT NULL
    RETURNING job_id, due_at, partition, state
), earliest AS (
    SELECT partition, min(due_at) AS due_at FROM written WHERE state = 'armed' GROUP BY partition
), {{lower_live_since}}
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    array_agg(job_id) FILTER (WHERE state = 'armed') AS job_ids,
    array_agg(due_at) FILTER (WHERE state = 'armed') AS due_ats,
    ARRAY(SELECT job_id FROM moved) AS moved_ids
FROM written;

-- name: arm_retries
WITH {{fence_with_owned}}, given AS MATERIALIZED (
    SELECT retry.*, fence.owned
    FROM fence, unnest($3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::bigint[])
        AS retry (job_id, due_at, retry_at, token)
), armed AS (
    UPDATE runs
    SET state = 'armed', shard = $1, token = given.token, armed_at = clock_timestamp(),
        heartbeat_at = NULL  -- of the previous attempt
    FROM given
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.retry_at = given.retry_at
      AND runs.state = 'retrying'
      AND array_position(given.owned, runs.partition) IS NOT NULL  -- never an index condition
    RETURNING runs.*
), marked AS (
    -- It updates. An UPDATE could be planned to scan the table, if that was empty at the time.
    INSERT INTO retries (job_id, due_at, tenant_id, partition, retry_at)
    SELECT job_id, due_at, tenant_id, partition, NULL FROM armed
    ON CONFLICT (job_id, due_at) DO UPDATE SET retry_at = NULL
)
SELECT held.is_held, armed.*
FROM (SELECT EXISTS (SELECT FROM fence) AS is_held) AS held
LEFT JOIN armed ON true;

-- name: advance_live_since
-- Each token takes effect once: a replay must not raise `live_since` after an arming has lowered
-- it.
WITH {{fence}}, given AS (
    SELECT * FROM unnest($3::smallint[], $4::timestamptz[], $5::bigint[])
        AS mark (partition, live_since, token)
), places AS MATERIALIZED (
    SELECT partitions.partition, given.live_since, given.token
    FROM fence, given JOIN partitions USING (partition)
    WHERE partitions.owner = fence.shard_id
    ORDER BY partitions.partition
    FOR NO KEY UPDATE OF partitions
)
UPDATE partitions
SET live_since = greatest(partitions.live_since, places.live_since), marked_by = places.token
FROM places
WHERE partitions.partition = places.partition AND partitions.marked_by < places.token;

-- name: finish_jobs
-- Only jobs whose timer has no due time left: a rescheduled job has one again. A locked job is
-- skipped, because an application may hold the lock for long; its timer is loaded again later.
WITH {{fence}}, locked AS MATERIALIZED (
    -- The job before its timer, like every other statement, to avoid deadlocks.
    SELECT jobs.job_id FROM fence, jobs
    WHERE jobs.job_id = ANY ($3::uuid[])
    ORDER BY jobs.job_id
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
), ended AS (
    DELETE FROM timers
    USING locked
    WHERE timers.job_id = locked.job_id AND timers.due_at = 'infinity'
    RETURNING timers.job_id
), finished AS (
    UPDATE jobs SET state = 'finished', version = version + 1, updated_at = clock_timestamp()
    FROM ended
    WHERE jobs.job_id = ended.job_id AND jobs.state IN ('active', 'paused')
    RETURNING jobs.tenant_id
), gone AS (
    SELECT tenant_id, count(*) AS jobs FROM finished GROUP BY tenant_id
), held AS MATERIALIZED (
    -- In a fixed order, to avoid deadlocks.
    SELECT job_counts.tenant_id, gone.jobs
    FROM gone JOIN job_counts ON job_counts.tenant_id = gone.tenant_id
    ORDER BY job_counts.tenant_id
    FOR NO KEY UPDATE OF job_counts
)
UPDATE job_counts SET jobs = job_counts.jobs - held.jobs
FROM held
WHERE job_counts.tenant_id = held.tenant_id;

-- name: pause_gone_jobs
-- Pauses jobs whose target answered that it is gone, unless they were resumed or edited since: only
-- the version that was sent is paused. A locked job is skipped. Returns the paused jobs, each with
-- the due time of its timer, if that had passed.
WITH {{fence}}, locked AS MATERIALIZED (
    SELECT jobs.job_id
    FROM fence, unnest($3::uuid[], $4::integer[]) AS given (job_id, version)
    JOIN jobs ON jobs.job_id = given.job_id
    WHERE jobs.version = given.version AND jobs.state = 'active'
    ORDER BY jobs.job_id
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
), paused AS (
    UPDATE jobs
    SET state = 'paused', version = jobs.version + 1, updated_at = clock_timestamp(),
        paused_at = clock_timestamp()
    FROM locked
    WHERE jobs.job_id = locked.job_id
    RETURNING jobs.*
), stopped AS (
    DELETE FROM timers
    USING paused
    WHERE timers.job_id = paused.job_id
    RETURNING timers.job_id, timers.due_at
)
SELECT paused.*, stopped.due_at
FROM paused LEFT JOIN stopped
    ON paused.job_id = stopped.job_id AND stopped.due_at <= paused.paused_at
ORDER BY paused.job_id;
