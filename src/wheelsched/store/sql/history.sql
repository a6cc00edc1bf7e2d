-- name: get_run
SELECT * FROM runs WHERE job_id = $1 AND due_at = $2;

-- name: list_attempts
SELECT * FROM attempts WHERE job_id = $1 AND due_at = $2 AND outcome = 'failed' ORDER BY attempt;

-- name: list_runs
SELECT * FROM runs
WHERE job_id = $1 AND due_at < coalesce($2::timestamptz, 'infinity')
ORDER BY due_at DESC
LIMIT $3;

-- name: list_dead
SELECT job_id, due_at FROM dead
WHERE tenant_id = current_tenant() AND (due_at, job_id) > ($1::timestamptz, $2::uuid)
ORDER BY due_at, job_id
LIMIT $3;

-- name: request_runs
-- They begin as if they waited for a retry: only the shard that owns them may arm them.
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::timestamptz[])
        AS run (job_id, due_at, trigger, backfill_of)
), added AS (
    INSERT INTO runs (
        job_id, due_at, tenant_id, partition, state, trigger, backfill_of, retry_at, had_retry
    )
    SELECT given.job_id, given.due_at, jobs.tenant_id, jobs.partition, 'retrying', given.trigger,
        given.backfill_of, given.due_at, true
    FROM given JOIN jobs USING (job_id)
    ON CONFLICT DO NOTHING
    RETURNING job_id, due_at, partition, retry_at
), waiting AS (
    INSERT INTO retries (job_id, due_at, partition, retry_at)
    SELECT job_id, due_at, partition, retry_at FROM added
)
SELECT job_id, due_at, pg_notify('wheelsched', partition || ' ' || job_id) FROM added;

-- name: cancel_run
WITH before AS (
    SELECT state, due_at > clock_timestamp() + interval '1 second' AS is_early
    FROM runs WHERE job_id = $1 AND due_at = $2
    FOR UPDATE
), cancelled AS (
    UPDATE runs SET state = 'cancelled', finished_at = clock_timestamp(), retry_at = NULL
    FROM before
    WHERE runs.job_id = $1 AND runs.due_at = $2
      AND before.state IN ('armed', 'running', 'retrying')
    RETURNING runs.partition
), ended AS (
    DELETE FROM retries
    USING cancelled
    WHERE retries.job_id = $1 AND retries.due_at = $2
), hinted AS (
    SELECT pg_notify('wheelsched', partition || ' ' || $1::uuid) FROM cancelled
)
SELECT before.state, before.is_early, (SELECT count(*) FROM hinted) AS hints FROM before;

-- name: retry_runs
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::timestamptz[]) AS run (job_id, due_at)
), revived AS (
    UPDATE runs
    SET state = 'retrying', retry_at = date_trunc('milliseconds', clock_timestamp()),
        attempts_before = attempt, finished_at = NULL, had_retry = true
    FROM given
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.state IN ('dead', 'cancelled')
    RETURNING runs.job_id, runs.due_at, runs.tenant_id, runs.partition, runs.retry_at
), raised AS (
    DELETE FROM dead
    USING revived
    WHERE dead.tenant_id = revived.tenant_id
      AND dead.due_at = revived.due_at
      AND dead.job_id = revived.job_id
), waiting AS (
    INSERT INTO retries (job_id, due_at, partition, retry_at)
    SELECT job_id, due_at, partition, retry_at FROM revived
    ON CONFLICT (job_id, due_at) DO UPDATE SET retry_at = excluded.retry_at
)
SELECT job_id, due_at, pg_notify('wheelsched', partition || ' ' || job_id) FROM revived;

-- name: heartbeat
UPDATE runs SET heartbeat_at = clock_timestamp()
WHERE job_id = $1 AND due_at = $2 AND token = $3 AND state IN ('armed', 'running')
RETURNING true;
