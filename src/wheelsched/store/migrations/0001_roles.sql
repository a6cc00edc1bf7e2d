-- Three roles, none of which can log in: an operator grants them to accounts that can.
-- Roles belong to the whole server, so another database may have made them already, or may be
-- making them at this moment.
DO $$
DECLARE
    role_name text;
    -- From Postgres 16 on, who makes a role is a member of it that may not become it.
    needed text := CASE
        WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER'
    END;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['wheelsched_owner', 'wheelsched_shard', 'wheelsched_api'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
    IF NOT pg_has_role(CURRENT_USER, 'wheelsched_owner', needed) THEN
        EXECUTE format('GRANT wheelsched_owner TO %I', CURRENT_USER);
    END IF;
END
$$;

ALTER SCHEMA wheelsched OWNER TO wheelsched_owner;
ALTER TABLE wheelsched.migrations OWNER TO wheelsched_owner;
GRANT USAGE ON SCHEMA wheelsched TO wheelsched_shard, wheelsched_api;
GRANT SELECT ON wheelsched.migrations TO wheelsched_shard, wheelsched_api;
