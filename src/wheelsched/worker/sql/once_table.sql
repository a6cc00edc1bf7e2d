CREATE TABLE IF NOT EXISTS wheelsched_once (
    key text PRIMARY KEY,
    done_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS wheelsched_once_done_at ON wheelsched_once (done_at);
