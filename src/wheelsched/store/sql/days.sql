-- name: make_days
SELECT make_days(ARRAY(
    SELECT DISTINCT (instant AT TIME ZONE 'UTC')::date FROM unnest($1::timestamptz[]) AS instant
));
