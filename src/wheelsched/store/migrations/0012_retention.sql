-- How long history is kept, as settings of the installation, and the tables for dead runs that
-- outlive the table of their day.
SET LOCAL ROLE wheelsched_owner;

CREATE TABLE settings (
    is_only        boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    history_days   integer NOT NULL DEFAULT 30 CHECK (history_days BETWEEN 1 AND 3650),
    dead_days      integer NOT NULL DEFAULT 90 CHECK (dead_days BETWEEN 1 AND 3650),
    finished_days  integer NOT NULL DEFAULT 7 CHECK (finished_days BETWEEN 1 AND 3650),
    CONSTRAINT dead_outlive_history CHECK (dead_days >= history_days)
);
COMMENT ON TABLE settings IS 'one row: the settings of this installation';
COMMENT ON COLUMN settings.history_days IS 'runs and attempts, by their due time';
COMMENT ON COLUMN settings.dead_days IS 'dead runs and their attempts, by their due time';
COMMENT ON COLUMN settings.finished_days IS 'jobs that have finished or were refused';
-- An upgrade drops no history: an installation that has more than the default keeps what it has.
INSERT INTO settings (history_days)
SELECT CASE
    WHEN EXISTS (SELECT FROM days WHERE day < (clock_timestamp() AT TIME ZONE 'UTC')::date - 30)
    THEN 90 ELSE 30 END;

-- A day's tables are dropped whole, which costs the same for ten runs and for 200 million. The few
-- dead runs of the day are moved here first. A column that is added to runs or attempts is added
-- here too.
CREATE TABLE kept_runs (
    LIKE runs INCLUDING DEFAULTS INCLUDING COMMENTS,
    PRIMARY KEY (job_id, due_at)
);
CREATE TABLE kept_attempts (
    LIKE attempts INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
    PRIMARY KEY (job_id, due_at, token, outcome)
);
COMMENT ON TABLE kept_runs IS 'dead runs whose day has been dropped; each is listed in dead';

CREATE INDEX dead_by_age ON dead (due_at, job_id);
CREATE INDEX dead_of_job ON dead (job_id);

GRANT SELECT ON settings TO wheelsched_shard, wheelsched_api;
GRANT SELECT, DELETE ON kept_runs, kept_attempts TO wheelsched_api;
ALTER TABLE kept_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE kept_attempts ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON kept_runs TO wheelsched_api USING (tenant_id = current_tenant());
CREATE POLICY tenant ON kept_attempts TO wheelsched_api USING (tenant_id = current_tenant());
