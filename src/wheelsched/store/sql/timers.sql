-- name: load_timers
-- In binary an instant counts from 2000. Thirty years on, that is the count from 1970, and the
-- program has nothing left to do to a hundred thousand of them.
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
-- Of a job with a hundred thousand of them, those that came since they were read last.
SELECT job_id, due_at, retry_at
FROM unnest($1::uuid[], $3::timestamptz[]) AS given (job_id, since) JOIN retries USING (job_id)
WHERE retry_at > given.since AND retry_at <= $2;

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
-- The claims whose only run is that of their own due time, in the lane on time: nearly all. The
-- fence comes first; without it no timer is moved. The answer is short: who won is listed only if
-- not all did.
-- Without ON CONFLICT, which would cost a fifth more: a run that is there already is an error.
WITH fence AS MATERIALIZED (
    SELECT shard_id, ARRAY(SELECT partition FROM partitions WHERE owner = $1) AS owned
    FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
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
      AND timers.partition = ANY (fence.owned)
    RETURNING claims.job_id, claims.due_at, claims.tenant_id, claims.token, timers.partition
), armed AS (
    INSERT INTO runs (job_id, due_at, tenant_id, partition, state, shard, token, armed_at)
    SELECT job_id, due_at, tenant_id, partition, 'armed', $1, token, clock_timestamp() FROM moved
    RETURNING job_id
), earliest AS (
    SELECT partition, min(due_at) AS due_at FROM moved GROUP BY partition
), high AS MATERIALIZED (
    SELECT partitions.partition, earliest.due_at
    FROM earliest JOIN partitions USING (partition)
    WHERE partitions.live_since > earliest.due_at
    ORDER BY partitions.partition
    FOR NO KEY UPDATE OF partitions
), lowered AS (
    UPDATE partitions SET live_since = high.due_at
    FROM high
    WHERE partitions.partition = high.partition AND partitions.live_since > high.due_at
)
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    count(*) AS won,
    CASE WHEN count(*) < cardinality($3::uuid[]) THEN array_agg(job_id) END AS job_ids
FROM armed;

-- name: arm_missed
-- The claims that a misfire decision is about: a skip, and any number of runs, per timer. Also
-- those that may meet runs of their own past.
WITH fence AS MATERIALIZED (
    SELECT shard_id, ARRAY(SELECT partition FROM partitions WHERE owner = $1) AS owned
    FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), claims AS (
    SELECT * FROM unnest($3::uuid[], $4::timestamptz[], $5::integer[], $6::timestamptz[])
        AS claim (job_id, due_at, version, next_due_at)
), decided AS (
    SELECT * FROM unnest(
        $7::uuid[], $8::timestamptz[], $9::uuid[], $10::bigint[],
        $11::text[], $12::text[], $13::integer[], $14::timestamptz[]
    ) AS run (job_id, due_at, tenant_id, token, lane, skip_reason, missed_count, missed_since)
), moved AS (
    UPDATE timers SET due_at = coalesce(claims.next_due_at, 'infinity')
    FROM claims, fence
    WHERE timers.job_id = claims.job_id
      AND timers.due_at = claims.due_at
      AND timers.version = claims.version
      AND timers.partition = ANY (fence.owned)
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
    -- What a pause or an edit withdrew was never sent, and gives way when it is due after all.
    ON CONFLICT (job_id, due_at) DO UPDATE
    SET state = excluded.state, shard = excluded.shard, token = excluded.token,
        armed_at = excluded.armed_at, finished_at = NULL, lane = excluded.lane,
        skip_reason = NULL, missed_count = NULL, missed_since = NULL
    WHERE excluded.state = 'armed' AND runs.state = 'skipped'
      AND runs.skip_reason IN ('paused', 'edited') AND runs.armed_at IS NOT NULL
    RETURNING job_id, due_at, partition, state
), earliest AS (
    SELECT partition, min(due_at) AS due_at FROM written WHERE state = 'armed' GROUP BY partition
), high AS MATERIALIZED (
    SELECT partitions.partition, earliest.due_at
    FROM earliest JOIN partitions USING (partition)
    WHERE partitions.live_since > earliest.due_at
    ORDER BY partitions.partition
    FOR NO KEY UPDATE OF partitions
), lowered AS (
    UPDATE partitions SET live_since = high.due_at
    FROM high
    WHERE partitions.partition = high.partition AND partitions.live_since > high.due_at
)
SELECT
    EXISTS (SELECT FROM fence) AS is_held,
    array_agg(job_id) FILTER (WHERE state = 'armed') AS job_ids,
    array_agg(due_at) FILTER (WHERE state = 'armed') AS due_ats,
    ARRAY(SELECT job_id FROM moved) AS moved_ids
FROM written;

-- name: arm_retries
WITH fence AS MATERIALIZED (
    SELECT shard_id, ARRAY(SELECT partition FROM partitions WHERE owner = $1) AS owned
    FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), given AS MATERIALIZED (
    SELECT retry.*, fence.owned
    FROM fence, unnest($3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::bigint[])
        AS retry (job_id, due_at, retry_at, token)
), armed AS (
    UPDATE runs
    SET state = 'armed', shard = $1, token = given.token, armed_at = clock_timestamp(),
        heartbeat_at = NULL  -- it was of the attempt before
    FROM given
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.retry_at = given.retry_at
      AND runs.state = 'retrying'
      AND array_position(given.owned, runs.partition) IS NOT NULL  -- no way to look it up
    RETURNING runs.*
), marked AS (
    UPDATE retries SET retry_at = NULL
    FROM armed
    WHERE retries.job_id = armed.job_id AND retries.due_at = armed.due_at
)
SELECT held.is_held, armed.*
FROM (SELECT EXISTS (SELECT FROM fence) AS is_held) AS held
LEFT JOIN armed ON true;

-- name: advance_live_since
-- Each token once: what arrives a second time, after an arming has lowered the mark, hides nothing.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), given AS (
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
-- Only while the timer says so: a job that was rescheduled meanwhile has a future again. One that
-- is locked, perhaps by an application and for long, is passed by: its timer is met again.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), locked AS MATERIALIZED (
    -- The job before its timer, as everybody else.
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
    -- In one order: another that finishes jobs of the same tenants waits, and is not waited for.
    SELECT job_counts.tenant_id, gone.jobs
    FROM gone JOIN job_counts ON job_counts.tenant_id = gone.tenant_id
    ORDER BY job_counts.tenant_id
    FOR NO KEY UPDATE OF job_counts
)
UPDATE job_counts SET jobs = job_counts.jobs - held.jobs
FROM held
WHERE job_counts.tenant_id = held.tenant_id;

-- name: pause_gone_jobs
-- Only the version that was sent: a job that somebody resumed or edited since goes on, and one
-- that somebody is changing, or an application has locked, is passed by. Those that are paused are
-- given, each with the due time that its timer stood at, if that had passed.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), locked AS MATERIALIZED (
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
