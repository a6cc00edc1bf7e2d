-- name: begin_session
-- A script, to save a round trip; the program formats the settings. Its result is the number of
-- rows, which is all that asyncpg returns of a script: 1 if the server accepts writes, plus 2 if no
-- pooler has replaced the process id that the server sent at login.
SELECT {settings} WHERE {is_bound} OR pg_backend_pid() = {key_pid};
SELECT FROM generate_series(
    1, {{is_writable}}::integer + 2 * (pg_backend_pid() = {key_pid})::integer
);

-- name: read_pid
SELECT pg_backend_pid();

-- name: is_process
-- One row if this process answers; formatted by the program, for the simple query protocol.
SELECT WHERE pg_backend_pid() = {pid};

-- name: expire_when_idle
SELECT pg_backend_pid() FROM set_config('idle_session_timeout', '100ms', false);

-- name: prove_listening
SELECT
    pg_backend_pid() AS pid,
    EXISTS (SELECT FROM pg_listening_channels() AS name WHERE name = 'wheelsched') AS is_listening,
    {{is_writable}} AS is_writable;

-- name: begin_for_tenant
-- A script, to save a round trip. The tenant id is formatted by the program, never by a user.
BEGIN;
SELECT set_config('wheelsched.tenant', '{tenant_id}', true);

-- name: begin_for_operator
BEGIN;
SELECT set_config('wheelsched.operator', 'true', true);

-- name: commit
COMMIT;

-- name: roll_back
ROLLBACK;

-- name: hint_many
-- A notice holds at most 8,000 bytes.
SELECT pg_notify('wheelsched', '* ' || string_agg(job_id::text, ' '))
FROM unnest($1::uuid[]) WITH ORDINALITY AS changed (job_id, place)
GROUP BY place / 200;

-- name: hint
SELECT pg_notify('wheelsched', partition || ' ' || $1::uuid)
FROM (VALUES (get_byte(sha256(uuid_send($1)), 0))) AS place (partition);

-- name: describe_backend
-- The backend of this connection, and after how long the server ends it if the network is gone;
-- null: not because of the network. Where the role may not see the start, it is null.
WITH timeouts AS (
    SELECT name, setting::bigint AS value FROM pg_settings WHERE setting <> '0' AND name IN (
        'tcp_user_timeout', 'tcp_keepalives_idle', 'tcp_keepalives_interval',
        'tcp_keepalives_count', 'idle_session_timeout', 'transaction_timeout'
    )
), probes AS (
    SELECT max(value) FILTER (WHERE name = 'tcp_keepalives_idle')
        + max(value) FILTER (WHERE name = 'tcp_keepalives_interval')
        * max(value) FILTER (WHERE name = 'tcp_keepalives_count') AS seconds
    FROM timeouts
), milliseconds AS (
    SELECT min(value) AS least FROM timeouts
    WHERE name IN ('tcp_user_timeout', 'idle_session_timeout', 'transaction_timeout')
)
SELECT
    pg_backend_pid() AS pid,
    (SELECT backend_start FROM pg_stat_get_activity(pg_backend_pid())) AS started,
    pg_postmaster_start_time() AS server_started,
    CASE WHEN inet_client_addr() IS NOT NULL
        THEN least(probes.seconds * 1000000, milliseconds.least * 1000)
    END AS ends_after_us
FROM probes, milliseconds;
