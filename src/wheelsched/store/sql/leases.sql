-- name: join_shards
INSERT INTO shards (shard_id, address, expires_at)
VALUES ($1, $2, clock_timestamp() + $3 * interval '1 microsecond')
ON CONFLICT (shard_id) DO UPDATE SET address = excluded.address
RETURNING fence;

-- name: read_clock
SELECT clock_timestamp();

-- name: renew
UPDATE shards
SET expires_at = clock_timestamp() + $2 * interval '1 microsecond', renewals = renewals + 1
WHERE shard_id = $1
RETURNING renewals;

-- name: read_fence
SELECT fence FROM shards WHERE shard_id = $1;

-- name: look_at_shards
SELECT
    shard_id, renewals, expires_at < clock_timestamp() AS is_expired, is_leaving, started_at,
    address
FROM shards;

-- name: look_at_partitions
SELECT partition, owner, epoch FROM partitions ORDER BY partition;

-- name: tell_breakers
UPDATE shards SET breakers = $2::jsonb WHERE shard_id = $1;

-- name: read_breakers
SELECT shard_id, breakers FROM shards
WHERE breakers <> '[]' AND ($1::uuid IS NULL OR shard_id = $1);

-- name: acquire
-- What is ours already keeps its epoch, so that a replay changes nothing.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
)
UPDATE partitions
SET owner = fence.shard_id, epoch = epoch + (owner IS NULL)::integer
FROM fence
WHERE partition = ANY ($3::smallint[]) AND (owner IS NULL OR owner = fence.shard_id)
RETURNING partition, epoch, released_epoch;

-- name: release
-- Raising the fence changes a key: it waits for the statements in flight under the old one. Sent
-- again, it finds the fence raised and frees nothing: the shard may have them back by then.
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
    UPDATE partitions SET owner = NULL, released_epoch = epoch
    FROM raised
    WHERE partition = ANY ($3::smallint[]) AND owner = raised.shard_id
    RETURNING partition
), hinted AS (
    SELECT count(pg_notify('wheelsched', partition::text)) FROM freed
)
SELECT $2 + 1 AS fence FROM before, hinted;

-- name: take_over
-- The foreign key frees the partitions of the shard in the same statement.
WITH fence AS MATERIALIZED (
    SELECT shard_id FROM shards WHERE shard_id = $1 AND fence = $2 FOR KEY SHARE
), ended AS (
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

-- name: leave_shards
WITH ended AS (
    DELETE FROM shards WHERE shard_id = $1 RETURNING shard_id
)
SELECT count(pg_notify('wheelsched', partitions.partition::text))
FROM ended JOIN partitions ON partitions.owner = ended.shard_id;
