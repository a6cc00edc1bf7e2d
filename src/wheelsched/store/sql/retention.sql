-- name: make_days_ahead
SELECT make_days(ARRAY(
    SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date + n
    FROM generate_series(-1, $1::integer) AS n
));

-- name: allow_idle
-- The transaction with the lock is idle while another connection drops the days. Each statement
-- there has a timeout, but all of them together may take longer than the idle timeout.
SET LOCAL idle_in_transaction_session_timeout = 0;

-- name: lock_retention
-- The lock of this mode conflicts only with migrations and VACUUM of this table, not with readers.
LOCK TABLE migrations IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;

-- name: list_past_days
SELECT day FROM days
WHERE day < (clock_timestamp() AT TIME ZONE 'UTC')::date - $1::integer
ORDER BY day;

-- name: keep_dead
-- Moves a page of a day's dead runs, with their attempts, to the tables that outlive the day;
-- returns the last run of the page. A run that is being redriven stays: it is not dead once its row
-- is unlocked.
WITH page AS MATERIALIZED (
    SELECT due_at, job_id FROM dead
    WHERE due_at >= $1::date::timestamp AT TIME ZONE 'UTC'
      AND due_at < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND (due_at, job_id) > ($2::timestamptz, $3::uuid)
    ORDER BY due_at, job_id
    LIMIT $4
), moved AS (
    DELETE FROM runs
    USING page
    WHERE runs.due_at >= $1::date::timestamp AT TIME ZONE 'UTC'
      AND runs.due_at < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND runs.job_id = page.job_id
      AND runs.due_at = page.due_at
      AND runs.state = 'dead'
    RETURNING runs.*
), kept AS (
    INSERT INTO kept_runs SELECT * FROM moved ON CONFLICT DO NOTHING
), tried AS (
    DELETE FROM attempts
    USING moved
    WHERE attempts.due_at >= $1::date::timestamp AT TIME ZONE 'UTC'
      AND attempts.due_at < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND attempts.job_id = moved.job_id
      AND attempts.due_at = moved.due_at
    RETURNING attempts.*
), kept_tried AS (
    INSERT INTO kept_attempts SELECT * FROM tried ON CONFLICT DO NOTHING
)
SELECT due_at, job_id FROM page ORDER BY due_at DESC, job_id DESC LIMIT 1;

-- name: has_live
-- Whether the day has an unfinished run: runs that wait for an attempt are in retries, all others
-- are due since `live_since` of their partition.
SELECT EXISTS (
    SELECT FROM retries
    WHERE due_at >= $1::date::timestamp AT TIME ZONE 'UTC'
      AND due_at < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
) OR EXISTS (
    SELECT FROM partitions JOIN runs ON runs.partition = partitions.partition
    WHERE runs.due_at >= $1::date::timestamp AT TIME ZONE 'UTC'
      AND runs.due_at < ($1::date + 1)::timestamp AT TIME ZONE 'UTC'
      AND runs.due_at >= partitions.live_since
      AND runs.state IN ('armed', 'running', 'retrying')
);

-- name: write_detachments
-- Generates the statements that detach days. They run one by one and outside of a transaction,
-- which CONCURRENTLY requires, so that the hot path does not wait for their locks. One that was
-- interrupted is finished.
SELECT format(
    'ALTER TABLE %s DETACH PARTITION %s %s',
    inhparent::regclass, inhrelid::regclass,
    CASE WHEN inhdetachpending THEN 'FINALIZE' ELSE 'CONCURRENTLY' END
)
FROM pg_inherits
JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent IN ('runs'::regclass, 'attempts'::regclass)
  AND to_date(right(relname, 8), 'YYYYMMDD') = ANY ($1::date[])
ORDER BY relname;

-- name: write_drops
-- Generates the statements that drop detached days. Nothing else uses these tables, so nothing
-- waits.
SELECT format('DROP TABLE %s', pg_class.oid::regclass)
FROM pg_class
LEFT JOIN pg_inherits ON inhrelid = pg_class.oid
WHERE relnamespace = 'wheelsched'::regnamespace
  AND relkind = 'r'
  AND relname ~ '^(runs|attempts)_[0-9]{8}$'
  AND inhparent IS NULL
  AND to_date(right(relname, 8), 'YYYYMMDD') = ANY ($1::date[])
ORDER BY relname;

-- name: forget_days
DELETE FROM days WHERE day = ANY ($1::date[]);

-- name: forget_retries
-- Deletes retries whose runs were dropped with their day.
DELETE FROM retries
WHERE due_at < date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
    - make_interval(days => $1::integer)
  AND NOT EXISTS (
      SELECT FROM runs WHERE runs.job_id = retries.job_id AND runs.due_at = retries.due_at
  );

-- name: forget_dead
-- Deletes a page of the dead runs that are past their retention.
WITH past AS MATERIALIZED (
    SELECT tenant_id, due_at, job_id FROM dead
    WHERE due_at < date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
        - make_interval(days => $1::integer)
    ORDER BY due_at, job_id
    LIMIT $2
), listed AS (
    DELETE FROM dead
    USING past
    WHERE dead.tenant_id = past.tenant_id
      AND dead.due_at = past.due_at
      AND dead.job_id = past.job_id
), ended AS (
    DELETE FROM kept_runs
    USING past
    WHERE kept_runs.job_id = past.job_id AND kept_runs.due_at = past.due_at
), tried AS (
    DELETE FROM kept_attempts
    USING past
    WHERE kept_attempts.job_id = past.job_id AND kept_attempts.due_at = past.due_at
)
SELECT count(*) FROM past;

-- name: forget_payloads
-- Deletes payloads whose runs were dropped with their day and not kept beyond it.
DELETE FROM payloads
WHERE due_at < (SELECT min(day)::timestamp AT TIME ZONE 'UTC' FROM days)
  AND NOT EXISTS (
      SELECT FROM kept_runs
      WHERE kept_runs.job_id = payloads.job_id AND kept_runs.due_at = payloads.due_at
  );

-- name: lock_finished
-- A page of the jobs that finished long ago. A job that a request has locked is skipped.
SELECT job_id, updated_at FROM jobs
WHERE state = 'finished'
  AND updated_at < statement_timestamp() - make_interval(days => $1::integer)
  AND (updated_at, job_id) > ($2::timestamptz, $3::uuid)
ORDER BY updated_at, job_id
LIMIT $4
FOR UPDATE SKIP LOCKED;

-- name: remove_finished
-- A separate statement after the locks, so that it sees every run that was requested before them. A
-- job stays as long as it has a dead run, which could not be redriven without it.
WITH removed AS (
    DELETE FROM jobs
    WHERE job_id = ANY ($1::uuid[])
      AND NOT EXISTS (
          SELECT FROM runs
          WHERE runs.job_id = jobs.job_id AND runs.state IN ('armed', 'running', 'retrying')
      )
      AND NOT EXISTS (SELECT FROM dead WHERE dead.job_id = jobs.job_id)
    RETURNING job_id
)
SELECT count(*) FROM removed;

-- name: forget_refused
-- Deletes a page of the refused drafts that are older than finished jobs may become, and returns
-- how many were deleted. No quota limits how many there are, and they have neither timers nor runs.
WITH removed AS (
    DELETE FROM jobs
    WHERE job_id = ANY (ARRAY(
        SELECT job_id FROM jobs
        WHERE state = 'refused'
          AND updated_at < statement_timestamp() - make_interval(days => $1::integer)
        ORDER BY updated_at, job_id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job_id
)
SELECT count(*) FROM removed;

-- name: forget_answers
-- Idempotency keys are valid for one day.
DELETE FROM idempotency WHERE begun_at < statement_timestamp() - interval '1 day';
