-- name: name_tenant
SELECT set_config('wheelsched.tenant', $1, true);

-- name: round_trip
SELECT true;
