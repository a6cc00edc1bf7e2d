-- Statements on a connection of the application, in its transaction. Arguments and results are
-- text, whatever codecs the connection has.

-- name: schedule
SELECT wheelsched.schedule(
    $1::text, $2::text, NULL, $3::text::jsonb, $4::text, $5::text::jsonb, $6::text
)::text;

-- name: cancel
SELECT wheelsched.cancel($1::text);
