-- name: join_shards
INSERT INTO shards (
    shard_id, address, expires_at, went_back_at, lease_connection, backend_pid, backend_start,
    server_start, link_address, link_key
)
VALUES ($1, $2, clock_timestamp() + $3 * interval '1 microsecond', $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (shard_id) DO UPDATE SET
    address = excluded.address,
    went_back_at = excluded.went_back_at,
    lease_connection = excluded.lease_connection,
    backend_pid = excluded.backend_pid,
    backend_start = excluded.backend_start,
    server_start = excluded.server_start,
    link_address = excluded.link_address,
    link_key = excluded.link_key
RETURNING fence;

-- name: read_clock
SELECT clock_timestamp();

-- name: renew
-- A row from the past, with fewer renewals than are known ($3), is not renewed: its count must not
-- catch up. A delayed renewal over an earlier connection does not publish that connection's backend
-- again.
UPDATE shards
SET expires_at = clock_timestamp() + $2 * interval '1 microsecond',
    renewals = renewals + 1,
    lease_connection = greatest(lease_connection, $4),
    backend_pid = CASE WHEN lease_connection <= $4 THEN $5 ELSE backend_pid END,
    backend_start = CASE WHEN lease_connection <= $4 THEN $6 ELSE backend_start END,
    server_start = CASE WHEN lease_connection <= $4 THEN $7 ELSE server_start END
WHERE shard_id = $1 AND renewals >= $3
RETURNING renewals, fence;

-- name: read_lease
SELECT renewals, fence FROM shards WHERE shard_id = $1;

-- name: watch_backends
SELECT
    shard_id, renewals, backend_pid, backend_start, server_start,
    server_start = pg_postmaster_start_time() AND EXISTS (
        SELECT FROM pg_stat_get_activity(backend_pid) AS running
        WHERE coalesce(running.backend_start = shards.backend_start, true)
    ) AS is_alive
FROM shards
WHERE backend_pid IS NOT NULL;

-- name: read_fence
SELECT fence FROM shards WHERE shard_id = $1;

-- name: list_shards
SELECT
    shard_id, renewals, expires_at < clock_timestamp() AS is_expired, is_leaving, started_at,
    address, link_address, went_back_at
FROM shards;

-- name: list_partitions
SELECT partition, owner, epoch FROM partitions ORDER BY partition;

-- name: write_breakers
UPDATE shards SET breakers = $2::jsonb WHERE shard_id = $1;

-- name: read_breakers
SELECT shard_id, breakers FROM shards
WHERE breakers <> '[]' AND ($1::uuid IS NULL OR shard_id = $1);

-- name: acquire
-- A partition that the shard owns already keeps its epoch, so that a replay changes nothing; unless
-- the shard has known that epoch before, and asks for a later one.
WITH {{fence}}, wanted AS (
    SELECT * FROM unnest($3::smallint[], $4::integer[]) AS wanted (partition, known_epoch)
)
UPDATE partitions
SET owner = fence.shard_id,
    epoch = CASE WHEN owner IS NULL OR epoch <= known_epoch
        THEN greatest(
            epoch + 1,
            known_epoch + 1,
            floor(extract(epoch FROM clock_timestamp() - timestamptz '2026-01-01 00:00Z'))
        )
        ELSE epoch
    END
FROM fence, wanted
WHERE partitions.partition = wanted.partition AND (owner IS NULL OR owner = fence.shard_id)
RETURNING partitions.partition, epoch, released_epoch, released_at;

-- name: release
-- Raising the fence changes a key column, and so waits for statements in flight under the old
-- fence. A replay finds the fence raised and frees nothing: the shard may own the partitions again
-- by then.
WITH before AS MATERIALIZED (
    SELECT shard_id, fence FROM shards
    WHERE shard_id = $1 AND fence IN ($2, $2 + 1)
    FOR UPDATE
), raised AS (
    UPDATE shards SET fence = $2 + 1, is_leaving = is_leaving OR $4
    FROM before
    WHERE shards.shard_id = before.shard_id AND before.fence = $2
    RETURNING shards.shard_id
), freed AS (
    UPDATE partitions
    SET owner = NULL, released_epoch = epoch, released_at = clock_timestamp()
    FROM raised
    WHERE partition = ANY ($3::smallint[]) AND owner = raised.shard_id
    RETURNING partition
), hinted AS (
    SELECT count(pg_notify('wheelsched', partition::text)) FROM freed
)
SELECT $2 + 1 AS fence FROM before, hinted;

-- name: take_over
-- Deleting the shard frees its partitions, by their foreign key.
WITH {{fence}}, ended AS (
    DELETE FROM shards
    USING fence
    WHERE shards.shard_id = $3
      AND shards.shard_id <> fence.shard_id
      AND shards.renewals = $4
      AND shards.expires_at < clock_timestamp()
    RETURNING shards.shard_id
), hinted AS (
    SELECT count(pg_notify('wheelsched', partitions.partition::text))
    FROM ended JOIN partitions ON partitions.owner = ended.shard_id
)
SELECT shard_id FROM ended, hinted;

-- name: take_over_gone
-- The same for a shard whose lease connection ($5 to $7) has ended and which has not renewed since.
WITH {{fence}}, ended AS (
    DELETE FROM shards
    USING fence
    WHERE shards.shard_id = $3
      AND shards.shard_id <> fence.shard_id
      AND shards.renewals = $4
      AND shards.backend_pid = $5
      AND shards.backend_start IS NOT DISTINCT FROM $6
      AND shards.server_start = $7
      AND shards.server_start = pg_postmaster_start_time()
      AND NOT EXISTS (
          SELECT FROM pg_stat_get_activity($5) AS running
          WHERE coalesce(running.backend_start = $6, true)
      )
    RETURNING shards.shard_id
), hinted AS (
    SELECT count(pg_notify('wheelsched', partitions.partition::text))
    FROM ended JOIN partitions ON partitions.owner = ended.shard_id
)
SELECT shard_id FROM ended, hinted;

-- name: leave_shards
WITH ended AS (
    DELETE FROM shards WHERE shard_id = $1 RETURNING shard_id
), hinted AS (
    SELECT count(pg_notify('wheelsched', partitions.partition::text))
    FROM ended JOIN partitions ON partitions.owner = ended.shard_id
)
SELECT shard_id FROM ended, hinted;
