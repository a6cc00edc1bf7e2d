-- name: read_account
SELECT quote_ident(current_user) AS name, quote_ident(current_database()) AS database,
    current_setting('server_version_num')::integer AS version;

-- name: list_missing_roles
SELECT wanted FROM unnest($1::text[]) AS wanted
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted);

-- name: is_owner
SELECT bool_and(pg_has_role(current_user, 'wheelsched_owner', needed))
FROM unnest($1::text[]) AS needed;

-- name: list_foreign
-- Generates the statements that make wheelsched_owner the owner of every object: after a restore
-- they belong to the account that restored them. The schema comes first: the owner of a table needs
-- it.
SELECT statement
FROM (
    SELECT 1, 'ALTER SCHEMA wheelsched OWNER TO wheelsched_owner'
    FROM pg_namespace
    WHERE nspname = 'wheelsched' AND nspowner <> 'wheelsched_owner'::regrole
    UNION ALL
    SELECT 2, format('ALTER TABLE %s OWNER TO wheelsched_owner', pg_class.oid::regclass)
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'wheelsched'
      AND relkind IN ('r', 'p')
      AND relowner <> 'wheelsched_owner'::regrole
    UNION ALL
    SELECT 3, format('ALTER FUNCTION %s OWNER TO wheelsched_owner', pg_proc.oid::regprocedure)
    FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
    WHERE nspname = 'wheelsched' AND proowner <> 'wheelsched_owner'::regrole
) AS foreign_objects (turn, statement)
ORDER BY turn, statement;

-- name: list_missing_rights
-- Generates the statements that grant the roles the rights that they lack. Every right that
-- a migration grants must be listed here too; a test compares the two.
WITH on_tables (role_name, privilege, tables) AS (VALUES
    ('wheelsched_shard', 'SELECT', 'migrations settings tenants jobs job_counts timers runs '
        'attempts retries dead payloads shards partitions days unplanned api_processes'),
    ('wheelsched_shard', 'INSERT', 'job_counts timers runs attempts retries dead shards'),
    ('wheelsched_shard', 'UPDATE', 'job_counts timers runs retries shards partitions'),
    ('wheelsched_shard', 'DELETE', 'timers retries shards unplanned'),
    ('wheelsched_api', 'SELECT', 'migrations settings tenants tokens jobs job_counts timers runs '
        'attempts retries dead kept_runs kept_attempts payloads shards partitions days audit '
        'idempotency api_processes'),
    ('wheelsched_api', 'INSERT', 'tenants tokens jobs job_counts timers runs attempts retries dead '
        'payloads audit idempotency api_processes'),
    ('wheelsched_api', 'UPDATE', 'tenants tokens jobs job_counts timers runs retries idempotency '
        'api_processes'),
    ('wheelsched_api', 'DELETE', 'jobs timers retries dead kept_runs kept_attempts idempotency '
        'api_processes')
), on_columns (role_name, privilege, table_name, columns) AS (VALUES
    ('wheelsched_shard', 'UPDATE', 'jobs',
        'state paused_at updated_at version definition tags error')
), on_functions (role_name, functions) AS (VALUES
    ('wheelsched_shard', 'make_days oldest_unarmed'),
    ('wheelsched_api', 'make_days find_token register_jobs start_timers '
        'count_waiting oldest_unarmed read_jobs list_jobs'),
    ('public', 'schedule schedule_at cancel current_tenant is_operator')
), policies (policy, role_name, command, condition, tables) AS (VALUES
    ('shard', 'wheelsched_shard', 'ALL', 'true', 'tenants tokens jobs job_counts timers runs '
        'attempts retries dead payloads audit unplanned'),
    ('tenant', 'wheelsched_api', 'ALL', 'tenant_id = current_tenant()', 'jobs job_counts runs '
        'attempts retries dead kept_runs kept_attempts payloads audit idempotency'),
    ('tenant', 'wheelsched_api', 'SELECT', 'tenant_id = current_tenant()', 'tenants'),
    ('tenant', 'wheelsched_api', 'ALL',
        'EXISTS (SELECT FROM jobs WHERE jobs.job_id = timers.job_id)', 'timers'),
    ('operator', 'wheelsched_api', 'ALL', 'is_operator()', 'tenants tokens audit')
), functions AS (
    SELECT pg_proc.oid, proname, coalesce(proacl, acldefault('f', proowner)) AS acl
    FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
    WHERE nspname = 'wheelsched'
), tables AS (
    SELECT pg_class.oid, relname, relrowsecurity,
        coalesce(relacl, acldefault('r', relowner)) AS acl
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'wheelsched' AND relkind IN ('r', 'p')
), roles (role_name, role_id) AS (
    SELECT 'public', 0::oid
    UNION ALL
    SELECT rolname, oid FROM pg_roles WHERE rolname IN ('wheelsched_shard', 'wheelsched_api')
)
SELECT format('GRANT USAGE ON SCHEMA wheelsched TO %s', role_name)
FROM roles, pg_namespace
WHERE nspname = 'wheelsched' AND NOT EXISTS (
    SELECT FROM aclexplode(coalesce(nspacl, acldefault('n', nspowner))) AS held
    WHERE held.grantee = role_id AND held.privilege_type = 'USAGE'
)
UNION ALL
SELECT format('GRANT %s ON %s TO %s', privilege, tables.oid::regclass, role_name)
FROM on_tables
JOIN roles USING (role_name)
JOIN tables ON relname = ANY (string_to_array(on_tables.tables, ' '))
WHERE NOT EXISTS (
    SELECT FROM aclexplode(acl) AS held
    WHERE held.grantee = role_id AND held.privilege_type = privilege
)
UNION ALL
SELECT format('GRANT %s (%I) ON %s TO %s', privilege, attname, tables.oid::regclass, role_name)
FROM on_columns
JOIN roles USING (role_name)
JOIN tables ON relname = table_name
JOIN pg_attribute ON attrelid = tables.oid AND attname = ANY (string_to_array(columns, ' '))
WHERE NOT EXISTS (
    SELECT FROM aclexplode(attacl) AS held
    WHERE held.grantee = role_id AND held.privilege_type = privilege
)
UNION ALL
SELECT format('GRANT EXECUTE ON FUNCTION %s TO %s', functions.oid::regprocedure, role_name)
FROM on_functions
JOIN roles USING (role_name)
JOIN functions ON proname = ANY (string_to_array(on_functions.functions, ' '))
WHERE NOT EXISTS (SELECT FROM aclexplode(acl) AS held WHERE held.grantee = role_id)
UNION ALL
SELECT format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', functions.oid::regprocedure)
FROM functions
WHERE EXISTS (SELECT FROM aclexplode(acl) AS held WHERE held.grantee = 0)
  AND NOT EXISTS (
      SELECT FROM on_functions
      WHERE role_name = 'public' AND proname = ANY (string_to_array(on_functions.functions, ' '))
  )
UNION ALL
SELECT format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', tables.oid::regclass)
FROM tables
WHERE NOT relrowsecurity
  AND (
      relname = 'database_roles'
      OR EXISTS (
          SELECT FROM policies WHERE relname = ANY (string_to_array(policies.tables, ' '))
      )
  )
UNION ALL
SELECT format(
    'CREATE POLICY %I ON %s FOR %s TO %s USING (%s)',
    policy, tables.oid::regclass, command, role_name, condition
)
FROM policies
JOIN tables ON relname = ANY (string_to_array(policies.tables, ' '))
WHERE NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = tables.oid AND polname = policy);
