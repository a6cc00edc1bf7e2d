-- A shard publishes the server process behind its lease connection. The others see that it is gone
-- within a second of the shard's death, and need not wait for the lease to expire.
SET LOCAL ROLE wheelsched_owner;

ALTER TABLE shards
    ADD COLUMN lease_connection integer NOT NULL DEFAULT 0,
    ADD COLUMN backend_pid integer,
    ADD COLUMN backend_start timestamptz,
    ADD COLUMN server_start timestamptz,
    ADD COLUMN went_back_at timestamptz;
COMMENT ON COLUMN shards.lease_connection IS
    'counts the connections over which the shard has renewed';
COMMENT ON COLUMN shards.backend_pid IS
    'the backend of the lease connection; null: its end must not be relied on';
COMMENT ON COLUMN shards.backend_start IS 'null where the server hides it from the shard';
COMMENT ON COLUMN shards.server_start IS 'the lifetime of the server in which the pid is valid';
COMMENT ON COLUMN shards.went_back_at IS
    'when the process of the shard last noticed that the database had gone back in time';
