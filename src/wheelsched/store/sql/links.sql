-- name: publish_key
WITH gone AS (
    DELETE FROM api_processes
    WHERE seen_at < clock_timestamp() - $3 * interval '1 microsecond' AND process_id <> $1
)
INSERT INTO api_processes (process_id, key, seen_at) VALUES ($1, $2, clock_timestamp())
ON CONFLICT (process_id) DO UPDATE SET key = excluded.key, seen_at = excluded.seen_at;

-- name: withdraw_key
DELETE FROM api_processes WHERE process_id = $1;

-- name: read_key
SELECT key FROM api_processes
WHERE process_id = $1 AND seen_at >= clock_timestamp() - $2 * interval '1 microsecond';

-- name: list_linked_shards
SELECT shard_id, link_address, link_key FROM shards WHERE link_address IS NOT NULL;
