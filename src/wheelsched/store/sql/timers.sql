-- name: load_timers
-- In binary an instant counts from 2000. Thirty years on, that is the count from 1970, and the
-- program has nothing left to do to a hundred thousand of them.
SELECT job_id, due_at + interval '946684800 seconds', version FROM timers
WHERE partition = ANY ($1::smallint[]) AND due_at <= $2;

-- name: load_retries
SELECT job_id, due_at, retry_at FROM retries
WHERE partition = ANY ($1::smallint[]) AND retry_at <= $2;

-- name: read_jobs
SELECT job_id, tenant_id, name, state, version, definition, tags, created_at, updated_at, paused_at
FROM jobs
WHERE job_id = ANY ($1::uuid[]);

-- name: arm
-- The claims whose only run is that of their own due time: nearly all. The fence comes first;
-- without it no timer is moved. The answer is short: who won is listed only if not all did.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), claims AS (
    SELECT * FROM unnest(
        $3::uuid[], $4::timestamptz[], $5::integer[], $6::timestamptz[], $7::uuid[], $8::bigint[]
    ) AS claim (job_id, due_at, version, next_due_at, tenant_id, token)
), moved AS (
    UPDATE timers SET due_at = coalesce(claims.next_due_at, 'infinity')
    FROM claims, fence
    WHERE timers.job_id = claims.job_id
      AND timers.due_at = claims.due_at
      AND timers.version = claims.version
    RETURNING claims.job_id, claims.due_at, claims.tenant_id, claims.token, timers.partition
), armed AS (
    INSERT INTO runs (job_id, due_at, tenant_id, partition, state, shard, token, armed_at)
    SELECT job_id, due_at, tenant_id, partition, 'armed', $1, token, clock_timestamp() FROM moved
    ON CONFLICT DO NOTHING
    RETURNING job_id
), earliest AS (
    SELECT partition, min(due_at) AS due_at FROM moved GROUP BY partition
), lowered AS (
    UPDATE partitions SET live_since = earliest.due_at
    FROM earliest
    WHERE partitions.partition = earliest.partition AND partitions.live_since > earliest.due_at
)
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    count(*) AS won,
    CASE WHEN count(*) < cardinality($3::uuid[]) THEN array_agg(job_id) END AS job_ids
FROM armed;

-- name: arm_missed
-- The claims that a misfire decision is about: a skip, and any number of runs, per timer.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), claims AS (
    SELECT * FROM unnest($3::uuid[], $4::timestamptz[], $5::integer[], $6::timestamptz[])
        AS claim (job_id, due_at, version, next_due_at)
), decided AS (
    SELECT * FROM unnest(
        $7::uuid[], $8::timestamptz[], $9::uuid[], $10::bigint[],
        $11::text[], $12::integer[], $13::timestamptz[]
    ) AS run (job_id, due_at, tenant_id, token, skip_reason, missed_count, missed_since)
), moved AS (
    UPDATE timers SET due_at = coalesce(claims.next_due_at, 'infinity')
    FROM claims, fence
    WHERE timers.job_id = claims.job_id
      AND timers.due_at = claims.due_at
      AND timers.version = claims.version
    RETURNING timers.job_id, timers.partition
), written AS (
    INSERT INTO runs (
        job_id, due_at, tenant_id, partition, state, shard, token, armed_at, finished_at,
        skip_reason, missed_count, missed_since
    )
    SELECT
        job_id, decided.due_at, decided.tenant_id, moved.partition,
        CASE WHEN decided.token IS NULL THEN 'skipped' ELSE 'armed' END,
        $1, decided.token,
        CASE WHEN decided.token IS NOT NULL THEN clock_timestamp() END,
        CASE WHEN decided.token IS NULL THEN clock_timestamp() END,
        decided.skip_reason, decided.missed_count, decided.missed_since
    FROM moved JOIN decided USING (job_id)
    ON CONFLICT DO NOTHING
    RETURNING job_id, due_at, partition, state
), earliest AS (
    SELECT partition, min(due_at) AS due_at FROM written WHERE state = 'armed' GROUP BY partition
), lowered AS (
    UPDATE partitions SET live_since = earliest.due_at
    FROM earliest
    WHERE partitions.partition = earliest.partition AND partitions.live_since > earliest.due_at
)
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    array_agg(job_id) FILTER (WHERE state = 'armed') AS job_ids,
    array_agg(due_at) FILTER (WHERE state = 'armed') AS due_ats
FROM written;

-- name: arm_retries
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), given AS (
    SELECT * FROM unnest($3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::bigint[])
        AS retry (job_id, due_at, retry_at, token)
), armed AS (
    UPDATE runs
    SET state = 'armed', shard = $1, token = given.token, armed_at = clock_timestamp(),
        retry_at = NULL
    FROM given, fence
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.retry_at = given.retry_at
      AND runs.state = 'retrying'
    RETURNING runs.job_id, runs.due_at
), marked AS (
    UPDATE retries SET retry_at = NULL
    FROM armed
    WHERE retries.job_id = armed.job_id AND retries.due_at = armed.due_at
)
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    array_agg(job_id) AS job_ids,
    array_agg(due_at) AS due_ats
FROM armed;

-- name: advance_live_since
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
)
UPDATE partitions SET live_since = given.live_since
FROM fence, unnest($3::smallint[], $4::timestamptz[]) AS given (partition, live_since)
WHERE partitions.partition = given.partition
  AND partitions.owner = fence.shard_id
  AND partitions.live_since < given.live_since;

-- name: finish_jobs
-- Only while the timer says so: a job that was rescheduled meanwhile has a future again.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), ended AS (
    DELETE FROM timers
    USING fence
    WHERE timers.job_id = ANY ($3::uuid[]) AND timers.due_at = 'infinity'
    RETURNING timers.job_id
)
UPDATE jobs SET state = 'finished', version = version + 1, updated_at = clock_timestamp()
FROM ended
WHERE jobs.job_id = ended.job_id AND jobs.state IN ('active', 'paused')
RETURNING jobs.job_id;

-- name: pause_gone_jobs
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), paused AS (
    UPDATE jobs
    SET state = 'paused', version = version + 1, updated_at = clock_timestamp(),
        paused_at = clock_timestamp()
    FROM fence
    WHERE jobs.job_id = ANY ($3::uuid[]) AND jobs.state = 'active'
    RETURNING jobs.job_id
)
DELETE FROM timers
USING paused
WHERE timers.job_id = paused.job_id
RETURNING timers.job_id;

-- name: make_days
SELECT make_days(
    ARRAY(SELECT DISTINCT (instant AT TIME ZONE 'UTC')::date FROM unnest($1::timestamptz[]) AS instant)
);
