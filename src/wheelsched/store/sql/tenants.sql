-- name: create_tenant
INSERT INTO tenants (
    tenant_id, name, weight, job_quota, requests_per_second, secrets, created_at
)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING
RETURNING true;

-- name: lock_tenant
SELECT * FROM tenants WHERE tenant_id = $1 FOR NO KEY UPDATE;

-- name: edit_tenant
UPDATE tenants
SET name = $2, weight = $3, job_quota = $4, requests_per_second = $5, secrets = $6
WHERE tenant_id = $1
RETURNING true;

-- name: read_tenants
SELECT * FROM tenants WHERE tenant_id = ANY ($1::uuid[]);

-- name: list_tenants
SELECT * FROM tenants WHERE name > $1 ORDER BY name LIMIT $2;

-- name: add_token
INSERT INTO tokens (digest, tenant_id, name, scopes, created_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING
RETURNING true;

-- name: revoke_token
UPDATE tokens SET revoked_at = clock_timestamp()
WHERE digest = $1 AND revoked_at IS NULL
RETURNING *;

-- name: list_tokens
SELECT * FROM tokens WHERE tenant_id = $1 ORDER BY created_at, digest;

-- name: find_token
SELECT * FROM find_token($1);
