-- A shard tells which of its circuit breakers are open, so that the API can say what a run waits
-- for.
SET LOCAL ROLE wheelsched_owner;

ALTER TABLE shards ADD COLUMN breakers jsonb NOT NULL DEFAULT '[]';
