-- name: get_run
-- A dead run is in kept_runs once its day has been dropped.
SELECT * FROM runs WHERE job_id = $1 AND due_at = $2
UNION ALL
SELECT * FROM kept_runs WHERE job_id = $1 AND due_at = $2
LIMIT 1;

-- name: list_attempts
SELECT * FROM attempts WHERE job_id = $1 AND due_at = $2 AND outcome = 'failed'
UNION ALL
SELECT * FROM kept_attempts WHERE job_id = $1 AND due_at = $2 AND outcome = 'failed'
ORDER BY attempt;

-- name: list_runs
(
    SELECT * FROM runs
    WHERE job_id = $1 AND due_at < coalesce($2::timestamptz, 'infinity')
    ORDER BY due_at DESC
    LIMIT $3
)
UNION ALL
(
    SELECT * FROM kept_runs
    WHERE job_id = $1 AND due_at < coalesce($2::timestamptz, 'infinity')
    ORDER BY due_at DESC
    LIMIT $3
)
ORDER BY due_at DESC
LIMIT $3;

-- name: list_runs_from
(
    SELECT * FROM runs
    WHERE job_id = $1 AND due_at >= $2
    ORDER BY due_at
    LIMIT $3
)
UNION ALL
(
    SELECT * FROM kept_runs
    WHERE job_id = $1 AND due_at >= $2
    ORDER BY due_at
    LIMIT $3
)
ORDER BY due_at
LIMIT $3;

-- name: list_latest
-- The latest runs of all jobs in a slice of time. Each partition is read backwards along the index
-- runs_of_partition, until the page is full. So it is undefined which runs of the earliest instant
-- of a full page are returned.
SELECT latest.*
FROM generate_series(0, 255) AS each (partition)
CROSS JOIN LATERAL (
    SELECT * FROM runs
    WHERE runs.partition = each.partition::smallint
      AND runs.due_at >= $1 AND runs.due_at < $2
      AND runs.tenant_id = current_tenant()
      AND ($3::text IS NULL OR runs.state = $3)
    ORDER BY runs.due_at DESC
    LIMIT $4
) AS latest
ORDER BY latest.due_at DESC
LIMIT $4;

-- name: list_instant
-- The runs of all jobs that are due at one instant: partition by partition, until the page is full,
-- because there may be half a million.
SELECT due.*
FROM generate_series(0, 255) AS each (partition)
CROSS JOIN LATERAL (
    SELECT * FROM runs
    WHERE runs.partition = each.partition::smallint
      AND runs.due_at = $1
      AND (runs.partition, runs.job_id) > ($2::smallint, $3::uuid)
      AND runs.tenant_id = current_tenant()
      AND ($4::text IS NULL OR runs.state = $4)
    ORDER BY runs.job_id
    LIMIT $5
) AS due
WHERE each.partition >= $2::smallint
ORDER BY each.partition, due.job_id
LIMIT $5;

-- name: list_latest_of_job
SELECT * FROM runs
WHERE job_id = $1 AND due_at >= $2 AND due_at < $3 AND ($4::text IS NULL OR state = $4)
ORDER BY due_at DESC
LIMIT $5;

-- name: list_latest_dead
SELECT run.*
FROM {{dead_runs}}
WHERE dead.tenant_id = current_tenant()
  AND dead.due_at >= $1
  AND (dead.due_at, dead.job_id) < ($2::timestamptz, $3::uuid)
ORDER BY dead.due_at DESC, dead.job_id DESC
LIMIT $4;

-- name: list_latest_live
-- Runs that are running or wait for an attempt are in retries, a small table.
SELECT runs.*
FROM retries JOIN runs USING (job_id, due_at)
WHERE retries.tenant_id = current_tenant()
  AND retries.due_at >= $1
  AND (retries.due_at, retries.job_id) < ($2::timestamptz, $3::uuid)
  AND runs.state = $4
ORDER BY retries.due_at DESC, retries.job_id DESC
LIMIT $5;

-- name: list_dead
SELECT run.*
FROM {{dead_runs}}
WHERE dead.tenant_id = current_tenant()
  AND (dead.due_at, dead.job_id) > ($1::timestamptz, $2::uuid)
  AND ($3::uuid IS NULL OR dead.job_id = $3)
  AND dead.due_at >= coalesce($4::timestamptz, '-infinity')
  AND dead.due_at < coalesce($5::timestamptz, 'infinity')
ORDER BY dead.due_at, dead.job_id
LIMIT $6;

-- name: lock_requested
-- Serialises the requests for one job, so that a free instant stays free until it is taken, and
-- keeps the job from being removed.
SELECT job_id FROM jobs WHERE job_id = $1 FOR NO KEY UPDATE;

-- name: count_waiting
SELECT count_waiting($1, $2);

-- name: list_taken
SELECT due_at, request_id FROM runs
WHERE job_id = $1 AND due_at = ANY ($2::timestamptz[])
ORDER BY due_at;

-- name: list_requested
SELECT due_at FROM runs
WHERE job_id = $1 AND due_at >= $2 AND request_id = $3
ORDER BY due_at
LIMIT $4;

-- name: request_runs
-- Requested runs begin as retries, because only the shard that owns a run may arm it.
WITH added AS (
    INSERT INTO runs (
        job_id, due_at, tenant_id, partition, state, trigger, lane, backfill_of, retry_at,
        had_retry, request_id
    )
    SELECT jobs.job_id, given.due_at, jobs.tenant_id, jobs.partition, 'retrying', given.trigger,
        CASE given.trigger WHEN 'backfill' THEN 'late' ELSE 'on_time' END,
        given.backfill_of, given.due_at, true, $5
    FROM jobs, unnest($2::timestamptz[], $3::text[], $4::timestamptz[])
        AS given (due_at, trigger, backfill_of)
    WHERE jobs.job_id = $1
    RETURNING job_id, due_at, tenant_id, partition, retry_at
), waiting AS (
    INSERT INTO retries (job_id, due_at, tenant_id, partition, retry_at)
    SELECT job_id, due_at, tenant_id, partition, retry_at FROM added
)
SELECT pg_notify('wheelsched', partition || ' ' || job_id) FROM added LIMIT 1;

-- name: add_payload
INSERT INTO payloads (job_id, due_at, tenant_id, payload) VALUES ($1, $2, current_tenant(), $3);

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

-- name: list_kept
SELECT kept_runs.due_at
FROM unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at)
JOIN kept_runs ON kept_runs.job_id = given.job_id AND kept_runs.due_at = given.due_at;

-- name: restore_kept
-- Moves dead runs whose day has been dropped back to runs, to be retried.
WITH known AS MATERIALIZED (
    SELECT job_id FROM jobs WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR KEY SHARE
), taken AS (
    DELETE FROM kept_runs
    USING unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at) JOIN known USING (job_id)
    WHERE kept_runs.job_id = given.job_id AND kept_runs.due_at = given.due_at
    RETURNING kept_runs.*
), restored AS (
    INSERT INTO runs SELECT * FROM taken
), tried AS (
    DELETE FROM kept_attempts
    USING taken
    WHERE kept_attempts.job_id = taken.job_id AND kept_attempts.due_at = taken.due_at
    RETURNING kept_attempts.*
)
INSERT INTO attempts SELECT * FROM tried;

-- name: retry_runs
-- Only runs whose job exists; the lock keeps the job from being removed. A run that was cancelled
-- ahead of its time still waits for it. The last attempt of a dead run is stored in the row of the
-- run, which the next attempt overwrites: so it is copied to attempts.
WITH given AS (
    SELECT job_id, due_at, ($3::bigint + (position - 1) * $4::bigint) * interval '1 us' AS delay
    FROM unnest($1::uuid[], $2::timestamptz[]) WITH ORDINALITY AS run (job_id, due_at, position)
), known AS MATERIALIZED (
    SELECT job_id FROM jobs WHERE job_id = ANY ($1::uuid[]) ORDER BY job_id FOR KEY SHARE
), revived AS (
    UPDATE runs
    SET state = 'retrying',
        retry_at = date_trunc('milliseconds', greatest(
            clock_timestamp() + given.delay, CASE runs.state WHEN 'cancelled' THEN runs.due_at END
        )),
        attempts_before = runs.attempt, finished_at = NULL, had_retry = true, lane = 'late'
    FROM given JOIN known USING (job_id) JOIN runs AS ended USING (job_id, due_at)
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.state IN ('dead', 'cancelled')
      AND (runs.finished_at <= $5 OR $5::timestamptz IS NULL)
    RETURNING runs.*, ended.state AS ended_state, ended.finished_at AS ended_at,
        runs.attempt > ended.attempts_before AS is_attempted
), noted AS (
    INSERT INTO attempts (
        job_id, due_at, token, tenant_id, attempt, shard, started_at, finished_at, outcome,
        http_status, error
    )
    SELECT job_id, due_at, token, tenant_id, attempt, shard,
        CASE attempt WHEN 1 THEN started_at END, ended_at, 'failed', http_status, error
    FROM revived
    WHERE ended_state = 'dead' AND is_attempted
      -- A run that no worker claimed may have died without another attempt.
      AND NOT EXISTS (
          SELECT FROM attempts
          WHERE attempts.job_id = revived.job_id
            AND attempts.due_at = revived.due_at
            AND attempts.attempt = revived.attempt
            AND attempts.outcome = 'failed'
      )
    ON CONFLICT DO NOTHING
), raised AS (
    DELETE FROM dead
    USING revived
    WHERE dead.tenant_id = revived.tenant_id
      AND dead.due_at = revived.due_at
      AND dead.job_id = revived.job_id
), waiting AS (
    INSERT INTO retries (job_id, due_at, tenant_id, partition, retry_at)
    SELECT job_id, due_at, tenant_id, partition, retry_at FROM revived
    ON CONFLICT (job_id, due_at) DO UPDATE SET retry_at = excluded.retry_at
)
SELECT job_id, due_at, pg_notify('wheelsched', partition || ' ' || job_id) FROM revived;

-- name: heartbeat
UPDATE runs SET heartbeat_at = clock_timestamp(), lease_us = NULL
WHERE job_id = $1 AND due_at = $2 AND token = $3 AND state IN ('armed', 'running')
RETURNING true;

-- name: heartbeats
-- A run that is not held is read once more, by its key: it may have been cancelled.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::timestamptz[], $3::bigint[], $4::bigint[])
        WITH ORDINALITY AS given (job_id, due_at, token, lease_us, position)
), kept AS (
    UPDATE runs SET heartbeat_at = clock_timestamp(), lease_us = given.lease_us
    FROM given
    WHERE runs.job_id = given.job_id
      AND runs.due_at = given.due_at
      AND runs.token = given.token
      AND runs.state IN ('armed', 'running')
    RETURNING given.position
)
SELECT
    kept.position IS NOT NULL AS is_held,
    CASE WHEN kept.position IS NULL THEN coalesce((
        SELECT runs.state = 'cancelled' FROM runs
        WHERE runs.job_id = given.job_id
          AND runs.due_at = given.due_at
          AND runs.token = given.token
    ), false) ELSE false END AS is_cancelled
FROM given LEFT JOIN kept USING (position)
ORDER BY given.position;

-- name: read_live
SELECT runs.*, jobs.definition -> 'retry' AS retry,
    CASE WHEN jobs.updated_at <= runs.armed_at THEN jobs.version END AS unchanged_version
FROM unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at)
JOIN runs ON runs.job_id = given.job_id AND runs.due_at = given.due_at
LEFT JOIN jobs ON jobs.job_id = given.job_id;

-- name: read_tokens
SELECT runs.job_id, runs.due_at, runs.token
FROM unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at)
JOIN runs ON runs.job_id = given.job_id AND runs.due_at = given.due_at
UNION ALL
SELECT kept_runs.job_id, kept_runs.due_at, kept_runs.token
FROM unnest($1::uuid[], $2::timestamptz[]) AS given (job_id, due_at)
JOIN kept_runs ON kept_runs.job_id = given.job_id AND kept_runs.due_at = given.due_at;
