-- name: begin_for_tenant
-- A script, so that it takes one round trip; the id in it is spelled by ourselves.
BEGIN;
SELECT set_config('wheelsched.tenant', '{tenant_id}', true);

-- name: begin_for_operator
BEGIN;
SELECT set_config('wheelsched.operator', 'true', true);

-- name: commit
COMMIT;

-- name: roll_back
ROLLBACK;

-- name: round_trip
SELECT true;

-- name: hint_many
-- A notice has room for 8,000 bytes.
SELECT pg_notify('wheelsched', '* ' || string_agg(job_id::text, ' '))
FROM unnest($1::uuid[]) WITH ORDINALITY AS changed (job_id, place)
GROUP BY place / 200;

-- name: hint
SELECT pg_notify('wheelsched', partition || ' ' || $1::uuid)
FROM (VALUES (get_byte(sha256(uuid_send($1)), 0))) AS place (partition);
