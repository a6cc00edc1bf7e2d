-- Workers that pull: shards and the processes that hand out their runs find each other here, and
-- prove who they are with keys that only who can read these tables knows.
SET LOCAL ROLE wheelsched_owner;

ALTER TABLE shards
    ADD COLUMN link_address text,
    ADD COLUMN link_key bytea;
COMMENT ON COLUMN shards.link_address IS 'where the shard accepts links; null: it does not';
COMMENT ON COLUMN shards.link_key IS 'with which the shard proves its id on a link';

CREATE TABLE api_processes (
    process_id     uuid PRIMARY KEY,
    key            bytea NOT NULL,
    seen_at        timestamptz NOT NULL
);
COMMENT ON TABLE api_processes IS 'the processes that hand runs of the shards to workers';
COMMENT ON COLUMN api_processes.key IS 'with which the process proves its id on a link';
GRANT SELECT ON api_processes TO wheelsched_shard;
GRANT SELECT, INSERT, UPDATE, DELETE ON api_processes TO wheelsched_api;

ALTER TABLE runs ADD COLUMN lease_us bigint;
ALTER TABLE kept_runs ADD COLUMN lease_us bigint;
COMMENT ON COLUMN runs.lease_us IS
    'for how long the last heartbeat keeps the run; null: for the timeout of its job';
COMMENT ON COLUMN kept_runs.lease_us IS
    'for how long the last heartbeat keeps the run; null: for the timeout of its job';
