-- name: begin
-- Returns a row to the request that is to be executed: the first one with this key, or a later one
-- after the earlier one has stopped responding.
INSERT INTO idempotency (tenant_id, key, digest, begun_at, tried_at)
SELECT current_tenant(), $1, $2, now, now FROM clock_timestamp() AS now
ON CONFLICT (tenant_id, key) DO UPDATE SET tried_at = excluded.tried_at
WHERE idempotency.status IS NULL
  AND idempotency.digest = excluded.digest
  AND idempotency.tried_at < excluded.tried_at - $3::bigint * interval '1 us'
RETURNING digest, begun_at, tried_at;

-- name: read
SELECT digest, begun_at, status, headers, body FROM idempotency
WHERE tenant_id = current_tenant() AND key = $1;

-- name: keep
UPDATE idempotency SET status = $2, headers = $3, body = $4
WHERE tenant_id = current_tenant() AND key = $1 AND status IS NULL;

-- name: give_back
UPDATE idempotency SET tried_at = '-infinity'
WHERE tenant_id = current_tenant() AND key = $1 AND tried_at = $2 AND status IS NULL;

-- name: forget
DELETE FROM idempotency
WHERE tenant_id = current_tenant() AND key = $1 AND tried_at = $2 AND status IS NULL;
