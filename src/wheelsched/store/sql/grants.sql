-- name: has_role
SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1);

-- name: grant_role
INSERT INTO database_roles (database_role, tenant_id) VALUES ($1, $2)
ON CONFLICT (database_role) DO NOTHING;

-- name: read_role
SELECT tenant_id FROM database_roles WHERE database_role = $1;

-- name: read_session_role
SELECT session_user::text;

-- name: revoke_role
DELETE FROM database_roles WHERE database_role = $1 AND tenant_id = $2 RETURNING true;

-- name: list_roles
SELECT database_role, tenants.name AS tenant, granted_at
FROM database_roles JOIN tenants USING (tenant_id)
ORDER BY database_role;

-- name: count_drafts
-- `waiting` counts drafts that should have been planned by now: shards look for them every minute.
SELECT
    (SELECT count(*) FROM jobs WHERE state = 'refused') AS refused,
    (
        SELECT count(*) FROM unplanned
        WHERE written_at < statement_timestamp() - interval '2 minutes'
    ) AS waiting;
