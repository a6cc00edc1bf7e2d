-- name: make_days_ahead
SELECT make_days(ARRAY(
    SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date + n
    FROM generate_series(-1, $1::integer) AS n
));

-- name: wait_idle
-- The turn is a transaction that waits for the work of another connection: each statement there
-- has its timeout, and all of them together take as long as there are days to drop.
SET LOCAL idle_in_transaction_session_timeout = 0;

-- name: take_turn
-- A table that is neither written nor vacuumed in daily life; readers are not disturbed.
LOCK TABLE migrations IN SHARE UPDATE EXCLUSIVE MODE NOWAIT;

-- name: write_detachments
-- Statements that take old days from their parents. They run one by one and outside of a
-- transaction: only so is the lock one that the hot path does not notice. One that was cut short
-- leaves its day half detached, and is brought to its end.
SELECT format(
    'ALTER TABLE %s DETACH PARTITION %s %s',
    inhparent::regclass, inhrelid::regclass,
    CASE WHEN inhdetachpending THEN 'FINALIZE' ELSE 'CONCURRENTLY' END
)
FROM pg_inherits
JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent IN ('runs'::regclass, 'attempts'::regclass)
  AND to_date(right(relname, 8), 'YYYYMMDD')
      < (clock_timestamp() AT TIME ZONE 'UTC')::date - $1::integer
ORDER BY relname;

-- name: write_drops
-- Old days that have no parent any more. Nobody can reach them, so nobody waits.
SELECT format('DROP TABLE %s', pg_class.oid::regclass)
FROM pg_class
LEFT JOIN pg_inherits ON inhrelid = pg_class.oid
WHERE relnamespace = 'wheelsched'::regnamespace
  AND relkind = 'r'
  AND relname ~ '^(runs|attempts)_[0-9]{8}$'
  AND inhparent IS NULL
  AND to_date(right(relname, 8), 'YYYYMMDD')
      < (clock_timestamp() AT TIME ZONE 'UTC')::date - $1::integer
ORDER BY relname;

-- name: forget_days
DELETE FROM days WHERE day < (clock_timestamp() AT TIME ZONE 'UTC')::date - $1::integer;

-- name: forget_dead
DELETE FROM dead
WHERE due_at < date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
    - make_interval(days => $1::integer);

-- name: forget_retries
DELETE FROM retries
WHERE due_at < date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
    - make_interval(days => $1::integer);

-- name: lock_one_offs
-- One-offs that ended long ago, in pages. Who asks for a run of one holds a lock that is passed by.
SELECT job_id, updated_at FROM jobs
WHERE state = 'finished'
  AND definition -> 'spec' ->> 'kind' = 'at'
  AND updated_at < statement_timestamp() - make_interval(days => $1::integer)
  AND (updated_at, job_id) > ($2::timestamptz, $3::uuid)
ORDER BY updated_at, job_id
LIMIT $4
FOR UPDATE SKIP LOCKED;

-- name: remove_one_offs
-- A statement after the locks, so that it sees every run that was asked for before them.
WITH removed AS (
    DELETE FROM jobs
    WHERE job_id = ANY ($1::uuid[])
      AND NOT EXISTS (
          SELECT FROM runs
          WHERE runs.job_id = jobs.job_id AND runs.state IN ('armed', 'running', 'retrying')
      )
    RETURNING tenant_id
), gone AS (
    SELECT tenant_id, count(*) AS jobs FROM removed GROUP BY tenant_id
), held AS MATERIALIZED (
    -- In one order: another that removes jobs of the same tenants waits, and is not waited for.
    SELECT job_counts.tenant_id, gone.jobs
    FROM gone JOIN job_counts USING (tenant_id)
    ORDER BY job_counts.tenant_id
    FOR NO KEY UPDATE OF job_counts
), counted AS (
    UPDATE job_counts SET jobs = job_counts.jobs - held.jobs
    FROM held
    WHERE job_counts.tenant_id = held.tenant_id
)
SELECT count(*) FROM removed;

-- name: forget_refused
-- As long as one-offs are kept. They are not counted, and nothing else is known of them. No quota
-- bounds how many there are: those that have gone are told, and the next come with the next call.
WITH removed AS (
    DELETE FROM jobs
    WHERE job_id = ANY (ARRAY(
        SELECT job_id FROM jobs
        WHERE state = 'refused'
          AND updated_at < statement_timestamp() - make_interval(days => least($1::integer, 7))
        ORDER BY updated_at, job_id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job_id
)
SELECT count(*) FROM removed;

-- name: forget_answers
-- Whoever sends a request again does so within the day.
DELETE FROM idempotency
WHERE begun_at < statement_timestamp() - make_interval(days => least($1::integer, 1));
