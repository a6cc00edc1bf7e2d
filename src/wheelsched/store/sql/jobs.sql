-- name: register_jobs
WITH given AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::smallint[], $3::text[], $4::json[], $5::jsonb[], $6::timestamptz[],
        $7::timestamptz[]
    ) AS job (job_id, partition, name, definition, tags, created_at, due_at)
), added AS (
    INSERT INTO jobs (
        job_id, tenant_id, partition, name, state, definition, tags, created_at, updated_at
    )
    SELECT job_id, current_tenant(), partition, name,
        CASE WHEN due_at IS NULL THEN 'finished' ELSE 'active' END,
        definition, tags, created_at, created_at
    FROM given
    ON CONFLICT DO NOTHING
    RETURNING job_id, partition, version
)
SELECT added.job_id, added.partition, added.version, given.due_at
FROM added JOIN given USING (job_id);

-- name: start_timers
-- A statement of its own: the rows of jobs have to be there before the timers can be seen.
WITH started AS (
    INSERT INTO timers (job_id, partition, version, due_at)
    SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::integer[], $4::timestamptz[])
    ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, due_at = excluded.due_at
    RETURNING partition, job_id, due_at
)
SELECT count(pg_notify('wheelsched', partition || ' ' || job_id))
FROM started
WHERE due_at < clock_timestamp() + interval '10 minutes';

-- name: find_names
SELECT job_id, name FROM jobs WHERE name = ANY ($1::text[]);

-- name: get_job
SELECT job_id, tenant_id, name, state, version, definition, tags, created_at, updated_at, paused_at
FROM jobs
WHERE job_id = $1;

-- name: lock_job
-- First in every change: two changes of one job do not mix.
SELECT job_id, tenant_id, name, state, version, definition, tags, created_at, updated_at, paused_at
FROM jobs
WHERE job_id = $1
FOR UPDATE;

-- name: list_jobs
SELECT job_id, tenant_id, name, state, version, definition, tags, created_at, updated_at, paused_at
FROM jobs
WHERE tenant_id = current_tenant()
  AND name > $1
  AND ($2::text IS NULL OR state = $2)
  AND ($3::text IS NULL OR name = $3)
  AND ($4::jsonb = '{}' OR tags @> $4::jsonb)
ORDER BY name
LIMIT $5;

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
RETURNING version;

-- name: delete_job
DELETE FROM jobs WHERE job_id = $1;

-- name: bump_timer
-- As the other two that write the timer, it waits for the claim in flight. What follows in the
-- transaction sees the runs of that claim.
UPDATE timers SET version = $2 WHERE job_id = $1;

-- name: stop_timer
DELETE FROM timers WHERE job_id = $1;

-- name: withdraw_armed
-- What is due within a second may have been sent by the time that the shard hears of this.
UPDATE runs
SET state = $2, skip_reason = $3, finished_at = clock_timestamp(), missed_count = 1,
    missed_since = due_at
WHERE job_id = $1
  AND state = 'armed'
  AND NOT had_retry
  AND due_at > clock_timestamp() + interval '1 second';

-- name: cancel_waiting
WITH waiting AS (
    DELETE FROM retries WHERE job_id = $1 AND retry_at IS NOT NULL RETURNING job_id, due_at
)
UPDATE runs SET state = 'cancelled', finished_at = clock_timestamp(), retry_at = NULL
FROM waiting
WHERE runs.job_id = waiting.job_id AND runs.due_at = waiting.due_at AND runs.state = 'retrying';

-- name: list_too_late
SELECT due_at FROM runs
WHERE job_id = $1
  AND state = 'armed'
  AND NOT had_retry
  AND due_at > clock_timestamp() - interval '10 seconds'
  AND due_at <= clock_timestamp() + interval '1 second'
ORDER BY due_at;

-- name: hint
SELECT pg_notify('wheelsched', partition || ' ' || $1::uuid)
FROM (VALUES (get_byte(sha256(uuid_send($1)), 0))) AS place (partition);
