-- fragment: lease_lock
-- Locks the lease row of the shard ($1) while its fence is $2. A takeover deletes the row, and a
-- hand-over raises the fence: both wait for this lock, and every later statement finds no row.
FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE

-- fragment: fence
-- The first part of a statement that only the holder of a lease may run.
fence AS MATERIALIZED (
    SELECT shard_id {{lease_lock}}
)

-- fragment: fence_with_owned
-- The same, with the partitions that the shard owns.
fence AS MATERIALIZED (
    SELECT shard_id, ARRAY(SELECT partition FROM partitions WHERE owner = $1) AS owned
    {{lease_lock}}
)

-- fragment: move_timers
-- Claims due times by compare-and-set: moves each timer in `claims` to its next due time, if it is
-- unchanged and belongs to the shard.
UPDATE timers SET due_at = coalesce(claims.next_due_at, 'infinity')
FROM claims, fence
WHERE timers.job_id = claims.job_id
  AND timers.due_at = claims.due_at
  AND timers.version = claims.version
  AND timers.partition = ANY (fence.owned)

-- fragment: lower_live_since
-- Lowers `live_since` of each partition in `earliest` to its earliest run. The rows are locked in
-- the order of their partitions, to avoid deadlocks.
high AS MATERIALIZED (
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

-- fragment: job_columns
job_id, tenant_id, name, state, version, definition, tags, created_at, updated_at, paused_at, error

-- fragment: dead_runs
-- The dead runs, also those that were moved to kept_runs before their day was dropped.
dead
CROSS JOIN LATERAL (
    SELECT * FROM runs WHERE runs.job_id = dead.job_id AND runs.due_at = dead.due_at
    UNION ALL
    SELECT * FROM kept_runs
    WHERE kept_runs.job_id = dead.job_id AND kept_runs.due_at = dead.due_at
) AS run

-- fragment: is_writable
-- Whether the server accepts writes: it is not a standby, nor set to read-only.
(NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off')
