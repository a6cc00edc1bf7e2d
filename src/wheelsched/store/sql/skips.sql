-- name: stop_timer
-- clock_timestamp(), because the statement may have waited for a claim in flight.
DELETE FROM timers WHERE job_id = $1 RETURNING due_at, clock_timestamp() AS stopped_at;

-- name: list_existing_runs
-- The latest runs first: the row of a skip has the latest of its due times.
SELECT due_at FROM runs
WHERE job_id = $1 AND due_at BETWEEN $2 AND $3
ORDER BY due_at DESC
LIMIT $4;

-- name: write_skip
-- The last of the due times may have a row already, of a run that an earlier pause withdrew.
INSERT INTO runs (
    job_id, due_at, tenant_id, partition, state, finished_at, skip_reason, missed_count,
    missed_since
)
SELECT job_id, $2, tenant_id, partition, 'skipped', clock_timestamp(), $3, $4, $5
FROM jobs WHERE job_id = $1
ON CONFLICT (job_id, due_at) DO UPDATE
SET missed_count = excluded.missed_count, missed_since = excluded.missed_since
WHERE runs.state = 'skipped' AND runs.skip_reason = excluded.skip_reason;

-- name: withdraw_armed
-- Runs due within a second may have been sent by the time their shard is notified. The condition on
-- statement_timestamp() limits the scan to future runs; the one on clock_timestamp() is evaluated
-- again for a run whose lock the statement has waited for.
UPDATE runs
SET state = 'skipped', skip_reason = $2, finished_at = clock_timestamp(), missed_count = 1,
    missed_since = due_at
WHERE job_id = ANY ($1::uuid[])
  AND state = 'armed'
  AND NOT had_retry
  AND due_at > statement_timestamp() + interval '1 second'
  AND due_at > clock_timestamp() + interval '1 second';
