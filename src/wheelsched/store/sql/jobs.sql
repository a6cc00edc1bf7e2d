-- name: register_jobs
SELECT register_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: start_timers
SELECT start_timers($1, $2);

-- name: add_missing_jobs
-- Adds the jobs that do not exist yet and whose name is free.
INSERT INTO jobs (
    job_id, tenant_id, partition, name, state, definition, tags, created_at, updated_at
)
SELECT job_id, current_tenant(), get_byte(sha256(uuid_send(job_id)), 0), name,
    CASE WHEN due_at IS NULL THEN 'finished' ELSE 'active' END,
    definition, tags, created_at, created_at
FROM unnest(
    $1::uuid[], $2::timestamptz[], $3::text[], $4::json[], $5::jsonb[], $6::timestamptz[]
) AS job (job_id, due_at, name, definition, tags, created_at)
ON CONFLICT DO NOTHING
RETURNING job_id;

-- name: start_timer
INSERT INTO timers (job_id, partition, version, due_at)
VALUES ($1, get_byte(sha256(uuid_send($1)), 0), $2, $3)
ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, due_at = excluded.due_at;

-- name: find_jobs
SELECT job_id FROM jobs WHERE job_id = ANY ($1::uuid[]);

-- name: read_names
SELECT job_id, name FROM jobs WHERE job_id = ANY ($1::uuid[]);

-- name: get_job
SELECT {{job_columns}}
FROM jobs
WHERE job_id = $1;

-- name: lock_job
-- The first statement of every change, so that changes of one job are serialised.
SELECT {{job_columns}}
FROM jobs
WHERE job_id = $1
FOR UPDATE;

-- name: read_jobs
-- The function sets the tenant itself, which saves the round trips of a transaction.
SELECT {{job_columns}}
FROM read_jobs($1, $2);

-- name: list_jobs
-- Like read_jobs, for a page of jobs.
SELECT fingerprint, {{job_columns}}
FROM list_jobs($1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9);

-- name: edit_job
UPDATE jobs
SET name = $3, state = $4, version = version + 1, definition = $5, tags = $6, updated_at = $7,
    paused_at = CASE WHEN $4 = 'paused' THEN paused_at END
WHERE job_id = $1 AND version = $2
RETURNING version;

-- name: change_state
UPDATE jobs
SET state = $2, version = version + 1, updated_at = clock_timestamp(),
    paused_at = CASE WHEN $2 = 'paused' THEN clock_timestamp() END
WHERE job_id = $1 AND state = $3
RETURNING paused_at;

-- name: delete_job
DELETE FROM jobs WHERE job_id = $1;

-- name: count_job
-- Adds to the number of the tenant's jobs. The last statement of its transaction, because other
-- changes of that number wait until the transaction ends.
INSERT INTO job_counts (tenant_id, jobs) VALUES (current_tenant(), $1)
ON CONFLICT (tenant_id) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs
RETURNING jobs, (SELECT job_quota FROM tenants WHERE tenant_id = current_tenant());

-- name: bump_timer
-- Like the other statements that write the timer, it waits for a claim in flight. Later statements
-- of the transaction see the runs of that claim.
UPDATE timers SET version = $2 WHERE job_id = $1;

-- name: cancel_waiting
-- Writes the runs before their rows in retries, like every other statement, to avoid deadlocks. An
-- armed run that was never sent is skipped; all others are cancelled.
WITH ended AS (
    UPDATE runs
    SET state = CASE WHEN state = 'armed' AND attempt = 0 THEN 'skipped' ELSE 'cancelled' END,
        skip_reason = CASE WHEN state = 'armed' AND attempt = 0 THEN 'deleted' END,
        finished_at = clock_timestamp(), retry_at = NULL
    FROM retries
    WHERE retries.job_id = $1
      AND runs.job_id = retries.job_id
      AND runs.due_at = retries.due_at
      AND (
          runs.state = 'retrying'
          OR runs.state = 'armed' AND runs.retry_at > clock_timestamp() + interval '1 second'
      )
    RETURNING runs.job_id, runs.due_at
)
DELETE FROM retries
USING ended
WHERE retries.job_id = ended.job_id AND retries.due_at = ended.due_at;

-- name: list_too_late
-- Armed runs that are due within a second, and runs in a hand-over, which are marked as running
-- before they are sent. Reads the runs since `live_since` of the partition, at most an hour of
-- them.
SELECT due_at FROM runs
WHERE job_id = $1
  AND due_at > (
      SELECT greatest(
          least(live_since, statement_timestamp() - interval '10 seconds'),
          statement_timestamp() - interval '1 hour'
      )
      FROM partitions WHERE partition = $2
  )
  AND (
      state = 'armed' AND NOT had_retry AND due_at <= clock_timestamp() + interval '1 second'
      OR state = 'running' AND started_at IS NULL
  )
ORDER BY due_at;

-- name: list_late_retries
SELECT runs.due_at
FROM retries JOIN runs ON runs.job_id = retries.job_id AND runs.due_at = retries.due_at
WHERE retries.job_id = $1
  AND runs.state = 'armed'
ORDER BY runs.due_at;
