-- name: name_tenant
SELECT set_config('wheelsched.tenant', $1, true);

-- name: name_operator
SELECT set_config('wheelsched.operator', 'true', true);

-- name: round_trip
SELECT true;

-- name: hint
SELECT pg_notify('wheelsched', partition || ' ' || $1::uuid)
FROM (VALUES (get_byte(sha256(uuid_send($1)), 0))) AS place (partition);
