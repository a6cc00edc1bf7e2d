-- name: read_settings
SELECT history_days, dead_days, finished_days FROM wheelsched.settings;

-- name: lock_settings
SELECT history_days, dead_days, finished_days FROM wheelsched.settings FOR UPDATE;

-- name: write_settings
UPDATE wheelsched.settings SET history_days = $1, dead_days = $2, finished_days = $3;
