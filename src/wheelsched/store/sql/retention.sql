-- name: make_days_ahead
SELECT make_days(
    ARRAY(SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date + n FROM generate_series(-1, $1::integer) AS n)
);

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
WHERE due_at < date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
    - make_interval(days => $1::integer);

-- name: forget_retries
DELETE FROM retries
WHERE due_at < date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
    - make_interval(days => $1::integer);
